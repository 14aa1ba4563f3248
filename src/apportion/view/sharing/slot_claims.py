"""Which slot of its node each group has, where nobody reports GPUs.

A plan names a slot, the kubelet hands out a GPU. Two schedulers that both believe to lead can plan two groups for one
slot; each reservation pod then has a GPU of its own. Of groups whose GPUs are known to differ, one keeps the slot and
the others count on slots that nobody has planned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.apis.shared_gpus import is_slot


class Source(IntEnum):
    """Who says it; the first one known counts."""

    POD = 0
    RESERVATION = 1
    REQUEST = 2


@dataclass(frozen=True)
class Claim:
    source: Source
    slot: DeviceUUID
    uuid: str = ""  # of the GPU, if it is known


Claims = Mapping[str, Claim]  # by group


class SlotClaims:
    """What pods, reservation pods and BindRequests say, by the uid of the pod."""

    def __init__(self) -> None:
        self._claims: dict[NodeName, dict[PodUID, Claims]] = {}
        self._homes: dict[PodUID, NodeName] = {}
        self._moved: dict[NodeName, dict[str, DeviceUUID]] = {}

    def device_of(self, group: str, node: NodeName, planned: DeviceUUID) -> DeviceUUID:
        """Where the group counts that was planned on a device: on another one only if that was a slot."""
        return self._moved.get(node, {}).get(group, planned) if is_slot(planned) else planned

    def claim(self, uid: PodUID, node: NodeName, claims: Claims) -> set[NodeName]:
        """The nodes on which groups may have moved by it."""
        before = self._homes.get(uid)
        if before == node and self._claims[node][uid] == claims:
            return set()
        if before is not None:
            del self._homes[uid], self._claims[before][uid]
            if not self._claims[before]:
                del self._claims[before]
        if not claims:
            return {before} if before is not None else set()
        self._homes[uid] = node
        self._claims.setdefault(node, {})[uid] = claims
        return {node} if before is None else {node, before}

    def move(self, node: NodeName, slots: Sequence[DeviceUUID]) -> set[str]:
        """Bring the groups of a node in line with its claims and slots; says which of them have moved."""
        by_group: dict[str, list[Claim]] = {}
        for claims in self._claims.get(node, {}).values():
            for group, claim in claims.items():
                by_group.setdefault(group, []).append(claim)
        before, after = self._moved.pop(node, {}), _moved(by_group, slots)
        if after:
            self._moved[node] = after
        return {group for group in before.keys() | after.keys() if before.get(group) != after.get(group)}


def _moved(claims: Mapping[str, Collection[Claim]], slots: Sequence[DeviceUUID]) -> dict[str, DeviceUUID]:
    counted = {group: min(each, key=_order) for group, each in claims.items()}
    planned = {claim.slot for claim in counted.values()}
    free = iter([slot for slot in slots if slot not in planned])
    first: dict[DeviceUUID, str] = {}  # the GPU that keeps the slot
    others: dict[tuple[DeviceUUID, str], DeviceUUID] = {}
    found: dict[str, DeviceUUID] = {}
    for group, claim in sorted(counted.items()):
        if not claim.uuid or first.setdefault(claim.slot, claim.uuid) == claim.uuid:
            continue
        key = (claim.slot, claim.uuid)
        if key not in others and (slot := next(free, None)) is not None:
            others[key] = slot
        if key in others:
            found[group] = others[key]
    return found


def _order(claim: Claim) -> tuple[bool, Source, DeviceUUID, str]:
    return not claim.uuid, claim.source, claim.slot, claim.uuid
