"""What was decided for a group: operations that are applied to the fleet all or none, and then written.

decided    applied to the fleet, nothing is written yet
written    on the server; the cluster will show it soon
confirmed  the cluster shows it: from now on the observed facts count
undone     taken back; operations that exist on the server despite a failure stay
"""

from __future__ import annotations

import itertools

import msgspec

from apportion.apis.errors import LedgerError
from apportion.apis.identities import NodeName
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
    def node(self) -> NodeName:
        """Of a group of one: the pod's node."""
        (bind,) = self.binds
        return bind.node

    def devices_of(self, bind: Bind | BindShare) -> list[str]:
        """What a pod gets, in words: slices with their places, whole GPUs, shares."""
        slices = [claim.placement for claim in self.claims if claim.request.uid == bind.uid]
        found = [f"{place.profile} at {place.start} on {place.gpu}" for place in slices]
        if isinstance(bind, BindShare):
            return found + [f"{mib} MiB of {gpu}" for gpu, mib in bind.shares]
        return found + [str(gpu) for gpu in bind.devices]

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
        """In which order operations are written: each after those of this statement that it names in `after`.

        Ends of pods that it names have to be awaited before its wave is written (see `events_before`). Raises
        LedgerError for anything else that this statement does not write: nobody could tell when it is there.
        """
        left = self.operations
        if len(left) == 1 and not left[0].after:
            return (left,)
        known = {operation.confirmed_by for operation in left}
        unknown = [ref for each in left for ref in each.after if not ref.kind.is_event and ref not in known]
        if unknown:
            raise LedgerError("UnknownReference", f"the statement does not write {unknown[0]}, but waits for it")
        waves: list[tuple[Operation, ...]] = []
        while left:
            unwritten = {operation.confirmed_by for operation in left}
            ready = [unwritten.isdisjoint(operation.after) for operation in left]
            if not any(ready):
                raise LedgerError("EndlessWait", "operations wait for each other")
            waves.append(tuple(itertools.compress(left, ready)))
            left = tuple(operation for operation, done in zip(left, ready, strict=True) if not done)
        return tuple(waves)


def events_before(wave: tuple[Operation, ...]) -> tuple[ObjectRef, ...]:
    """What the cluster has to show before a wave is written."""
    return tuple(dict.fromkeys(ref for operation in wave for ref in operation.after if ref.kind.is_event))
