"""Namespaces as facts of the fleet: their labels matter for affinity across namespaces."""

from __future__ import annotations

from apportion.apis.meta import Bare
from apportion.core.fleet import Fleet
from apportion.view.change_log import ChangeLog, Happened


class Namespaces:
    """Feeds namespaces into the fleet."""

    def __init__(self, fleet: Fleet, changes: ChangeLog) -> None:
        self._fleet = fleet
        self._changes = changes

    def changed(self, old: Bare | None, new: Bare | None) -> None:
        subject = new or old
        assert subject is not None
        before = self._fleet.namespace_changes
        self._fleet.set_namespace(subject.metadata.name, new.metadata.labels if new is not None else None)
        if self._fleet.namespace_changes != before:
            self._changes.note(Happened.NAMESPACE_CHANGED)
