"""Namespaces as facts of the fleet: their labels matter for affinity across namespaces."""

from __future__ import annotations

from apportion.apis.meta import Bare
from apportion.core.cluster_changes import Happened
from apportion.core.fleet import Fleet
from apportion.view.change_log import ChangeLog


class Namespaces:
    """Feeds namespaces into the fleet."""

    def __init__(self, fleet: Fleet, changes: ChangeLog) -> None:
        self._fleet = fleet
        self._changes = changes

    def changed(self, old: Bare | None, new: Bare | None) -> None:
        subject = new or old
        assert subject is not None
        name, labels = subject.metadata.name, new.metadata.labels if new is not None else None
        if self._fleet.namespaces.get(name) != labels:
            self._fleet.set_namespace(name, labels)
            self._changes.note(Happened.NAMESPACE_CHANGED)
