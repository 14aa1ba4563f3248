"""Namespaces as facts of the fleet: their labels matter for affinity across namespaces."""

from __future__ import annotations

from apportion.apis.meta import Bare
from apportion.core.fleet import Fleet


class Namespaces:
    """Feeds namespaces into the fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def changed(self, old: Bare | None, new: Bare | None) -> None:
        subject = new or old
        assert subject is not None
        self._fleet.set_namespace(subject.metadata.name, new.metadata.labels if new is not None else None)
