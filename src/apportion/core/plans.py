"""The outcome of a decision: operations that are committed all or nothing."""

from __future__ import annotations

from dataclasses import dataclass

from apportion.core.facts import SlicePlacement
from apportion.core.fleet import Fleet


@dataclass(frozen=True)
class ClaimSlice:
    """Write the claim of one slice, before its pod is bound."""

    name: str
    uid: str
    namespace: str
    pod: str
    node: str
    placement: SlicePlacement


@dataclass(frozen=True)
class Bind:
    uid: str
    namespace: str
    name: str
    node: str


@dataclass(frozen=True)
class BindShare:
    """Hand a pod with a share to the binder: `shares` are (GPU uuid, MiB)."""

    uid: str
    namespace: str
    name: str
    node: str
    shares: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Evict:
    uid: str
    namespace: str
    name: str
    reason: str


@dataclass(frozen=True)
class Nominate:
    uid: str
    namespace: str
    name: str
    node: str


Operation = ClaimSlice | Bind | BindShare | Evict | Nominate


@dataclass(frozen=True)
class Plan:
    """What to do for a group of pods. The fleet already assumes it; `undo` takes that back."""

    operations: tuple[Operation, ...]

    @property
    def binds(self) -> tuple[Bind | BindShare, ...]:
        return tuple(op for op in self.operations if isinstance(op, Bind | BindShare))

    @property
    def claims(self) -> tuple[ClaimSlice, ...]:
        return tuple(op for op in self.operations if isinstance(op, ClaimSlice))

    def undo(self, fleet: Fleet) -> None:
        """Take the assumption back, also after other changes. Slices held before the plan stay."""
        for operation in reversed(self.operations):
            match operation:
                case ClaimSlice():
                    fleet.remove_slice(operation.name)
                case Bind():
                    fleet.remove_pod(operation.uid)
                case BindShare():
                    fleet.remove_pod(operation.uid)
                    for number in range(len(operation.shares)):
                        fleet.remove_share(share_key(operation.uid, number))
                case _:
                    pass


def share_key(uid: str, number: int) -> str:
    """The key of a pod's share on the number-th of its devices."""
    return f"{uid}/{number}"
