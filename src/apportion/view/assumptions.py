"""What this process has decided and the cluster has not shown yet.

A statement counts in the fleet the moment it is made. Each of its operations is assumed until an informer shows the
object (`confirm`), until the commit failed and the server has no such object (`forget`), or until it was not seen for
too long and a look at the server says that it is not there (`drop`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from apportion.core import statement as statements
from apportion.core.fleet import Fleet
from apportion.core.operations import ObjectKind, ObjectRef, Operation
from apportion.core.statement import Overdue, Statement
from apportion.view.changes import ChangeLog


class Assumptions:
    """What is taken back goes to the log of changes."""

    def __init__(self, fleet: Fleet, changes: ChangeLog, now: Callable[[], float]) -> None:
        self._open = statements.Assumptions(fleet)
        self._changes = changes
        self._now = now

    def assume(self, statement: Statement) -> None:
        """`decide` has entered the statement into the fleet: remember that nobody has confirmed it yet."""
        self._open.decided(statement)

    def written(self, statement: Statement) -> None:
        """The statement is on the server; from now on the informers have to show it soon."""
        self._open.written(statement, self._now())

    def forget(self, statement: Statement, existing: Collection[ObjectRef]) -> None:
        """The statement was not carried out; only what `existing` names is on the server."""
        for operation in self._open.undo(statement, self._now(), existing):
            self._undone(operation)

    def drop(self, operation: Operation) -> None:
        """The server does not have what the operation wrote."""
        ref = operation.confirmed_by
        if ref is not None and self._open.drop(ref) is not None:
            self._undone(operation)

    def confirm(self, kind: ObjectKind, name: str) -> bool:
        """An informer shows the object; True if that ends an assumption."""
        return self._open.confirm(ObjectRef(kind, name)) is not None

    def overdue(self, seconds: float) -> list[Overdue]:
        """What was written that many seconds ago and not seen since."""
        return self._open.overdue(self._now() - seconds)

    def _undone(self, operation: Operation) -> None:
        if operation.frees is not None:
            self._changes.note(*operation.frees)
