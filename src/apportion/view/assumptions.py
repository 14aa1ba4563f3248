"""Statements of this process that the API server has not shown yet: the life of a statement after it was decided.

`decide` has entered a statement into the fleet. Each of its operations counts there until the object that confirms it
is shown (from then on the facts speak for themselves), until the statement was not carried out and the server has no
such object (`undo`), or until it was not shown for too long and a look at the server says that it is not there
(`drop`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from apportion.cluster.pending_writes import PendingWrites
from apportion.core.cluster_changes import Change, Happened
from apportion.core.fleet import Fleet
from apportion.core.operations import ObjectKind, ObjectRef, Operation
from apportion.core.statement import Statement
from apportion.view.change_log import ChangeLog


class Assumed(NamedTuple):
    """An operation and the statement that it belongs to."""

    statement: Statement
    operation: Operation


class Assumptions:
    """Operations that the fleet counts and nobody has confirmed."""

    def __init__(self, fleet: Fleet, changes: ChangeLog, now: Callable[[], float]) -> None:
        self._fleet = fleet
        self._changes = changes
        self._pending: PendingWrites[object] = PendingWrites(now)
        self._assumed: dict[str, Assumed] = {}

    def __contains__(self, ref: ObjectRef) -> bool:
        return str(ref) in self._assumed

    def decided(self, statement: Statement) -> None:
        """The fleet counts it already; nothing is written yet."""
        for operation in statement.operations:
            if _is_shown(operation):
                key = str(operation.confirmed_by)
                self._assumed[key] = Assumed(statement, operation)
                self._pending.begin(key)
        self._changes.note(Happened.DISPLAY_CHANGED)

    def written(self, statement: Statement) -> None:
        """It is on the server; from now on informers have to show it soon."""
        for operation in statement.operations:
            self._written(operation)

    def undo(self, statement: Statement, existing: Collection[ObjectRef] = ()) -> None:
        """It was not carried out, apart from what exists on the server. What was shown meanwhile stays too."""
        for operation in reversed(statement.operations):
            if not _is_shown(operation):
                operation.undo(self._fleet)
            elif operation.confirmed_by in existing:
                self._written(operation)
            else:
                self.drop(operation)

    def drop(self, operation: Operation) -> None:
        """The server does not have it: take it back, if it still counts."""
        key = str(operation.confirmed_by)
        if self._pending.drop(key):
            del self._assumed[key]
            operation.undo(self._fleet)
            self._changes.note(*(operation.frees or Change(Happened.DISPLAY_CHANGED)))

    def refuted(self, kind: ObjectKind, name: str) -> bool:
        """The cluster shows that an operation will not be carried out; True if it counted until now."""
        assumed = self._assumed.get(str(ObjectRef(kind, name)))
        if assumed is not None:
            self.drop(assumed.operation)
        return assumed is not None

    def shown(self, kind: ObjectKind, name: str) -> bool:
        """An informer shows the object; True if that confirms an operation, which is then over."""
        key = str(ObjectRef(kind, name))
        assumed = self._assumed.get(key)
        if assumed is None or not assumed.operation.confirm(self._fleet):
            return False
        del self._assumed[key]
        return self._pending.shown(key)

    def overdue(self, seconds: float) -> list[Assumed]:
        """What was written that many seconds ago and not shown since."""
        return [self._assumed[key] for key in self._pending.overdue(seconds)]

    def _written(self, operation: Operation) -> None:
        if not _is_shown(operation):
            operation.confirm(self._fleet)
            return
        key = str(operation.confirmed_by)
        if key in self._assumed:
            self._pending.written(key)


def _is_shown(operation: Operation) -> bool:
    """An informer will show it."""
    return operation.confirmed_by is not None and operation.confirmed_by.kind.is_shown
