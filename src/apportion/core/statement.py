"""What was decided for a group: operations that are applied to the fleet all or none, and then written.

    decided    applied to the fleet, nothing is written yet
    written    on the server; the cluster will show it soon
    confirmed  the cluster shows it: from now on the facts speak for themselves
    undone     taken back; operations that stand on the server in spite of a failure stay

`Assumptions` keeps the operations that are decided or written and not confirmed yet.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from apportion.apis.errors import LedgerError
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.operations import Bind, BindShare, ClaimSlice, ObjectRef, Operation


class Statement(msgspec.Struct, frozen=True):
    """The operations of one group, in an order in which they can be applied."""

    group: Group
    operations: tuple[Operation, ...]

    @property
    def binds(self) -> tuple[Bind | BindShare, ...]:
        return tuple(each for each in self.operations if isinstance(each, Bind | BindShare))

    @property
    def claims(self) -> tuple[ClaimSlice, ...]:
        return tuple(each for each in self.operations if isinstance(each, ClaimSlice))

    @property
    def node(self) -> str:
        """Of a group of one: the pod's node."""
        (bind,) = self.binds
        return bind.node

    def apply(self, fleet: Fleet) -> None:
        """Enter everything into the fleet; raises LedgerError and changes nothing if one of them cannot be."""
        mark = fleet.checkpoint()
        try:
            for operation in self.operations:
                operation.apply(fleet)
        except LedgerError:
            fleet.rollback(mark)
            raise
        fleet.release(mark)

    def undo(self, fleet: Fleet) -> None:
        """Take everything back, also after other changes."""
        for operation in reversed(self.operations):
            operation.undo(fleet)

    def waves(self) -> tuple[tuple[Operation, ...], ...]:
        """In which order operations are written: each after those of this statement that it names in `after`."""
        if len(self.operations) == 1:
            return (self.operations,)
        left = self.operations
        waves: list[tuple[Operation, ...]] = []
        while left:
            unwritten = {operation.confirmed_by for operation in left}
            ready = [unwritten.isdisjoint(operation.after) for operation in left]
            if not any(ready):
                raise LedgerError("EndlessWait", "operations wait for each other")
            waves.append(tuple(itertools.compress(left, ready)))
            left = tuple(operation for operation, done in zip(left, ready, strict=True) if not done)
        return tuple(waves)


class Overdue(NamedTuple):
    """Written a while ago, and the cluster does not show it."""

    statement: Statement
    operation: Operation


class Assumptions:
    """Operations that the fleet counts and the cluster has not confirmed. Times are whatever the caller measures."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._open: dict[ObjectRef, tuple[Statement, Operation]] = {}
        self._written: dict[ObjectRef, float] = {}

    def __contains__(self, ref: ObjectRef) -> bool:
        return ref in self._open

    def decided(self, statement: Statement) -> None:
        """The fleet counts it already."""
        for operation in statement.operations:
            ref = operation.confirmed_by
            if ref is not None:
                self._open[ref] = (statement, operation)
                self._written[ref] = math.inf

    def written(self, statement: Statement, now: float) -> None:
        """It is on the server; from now on the cluster has to show it soon."""
        for operation in statement.operations:
            ref = operation.confirmed_by
            if ref is not None and ref in self._open:
                self._written[ref] = now

    def undo(self, statement: Statement, now: float, standing: Collection[ObjectRef] = ()) -> list[Operation]:
        """It was not carried out, apart from what stands on the server; what has been taken back.

        What the cluster has shown meanwhile is a fact and stays.
        """
        undone: list[Operation] = []
        for operation in reversed(statement.operations):
            ref = operation.confirmed_by
            if ref is None:
                operation.undo(self._fleet)
            elif ref in standing:
                if ref in self._open:
                    self._written[ref] = now
            elif self.drop(ref) is not None:
                undone.append(operation)
        return undone

    def confirm(self, ref: ObjectRef) -> Operation | None:
        """The cluster shows the object; the operation that is over, if the facts of the fleet tell the same now."""
        known = self._open.get(ref)
        if known is None or not known[1].confirm(self._fleet):
            return None
        del self._open[ref], self._written[ref]
        return known[1]

    def drop(self, ref: ObjectRef) -> Operation | None:
        """The server does not have it: take it back."""
        known = self._open.pop(ref, None)
        if known is None:
            return None
        del self._written[ref]
        known[1].undo(self._fleet)
        return known[1]

    def overdue(self, before: float) -> list[Overdue]:
        """What was written at that time or earlier and has not been confirmed."""
        return [Overdue(*self._open[ref]) for ref, at in self._written.items() if at <= before]
