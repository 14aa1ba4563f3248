"""Which device of its node each group counts on.

A plan names a device, but the kubelet hands them out: the reservation pod of a group can get the GPU that was planned
for another group. Two schedulers that both believe to lead can also plan two groups for one device. Each group has a
GPU of its own in the end, so a group whose planned device somebody else has counts on one that nobody has or plans.

Where nobody reports GPUs, a device is a slot. Of groups on one slot whose GPUs are known to differ, one keeps the slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import NamedTuple

from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.apis.shared_gpus import is_slot


class Source(IntEnum):
    """Who says it; the first one known counts."""

    POD = 0
    RESERVATION = 1
    REQUEST = 2


class Claim(NamedTuple):
    source: Source
    device: DeviceUUID
    uuid: DeviceUUID = DeviceUUID("")  # of the GPU, if it is known


Claims = Mapping[str, Claim]  # by group


class NodeDevices(NamedTuple):
    """`usable`: those that the kubelet can give to a reservation pod, in the order in which groups get them; `held`: by
    pod, as the agent reports."""

    known: AbstractSet[DeviceUUID]
    usable: Sequence[DeviceUUID]
    held: Mapping[PodUID, tuple[DeviceUUID, ...]]


class DeviceClaims:
    """What pods, reservation pods and BindRequests say, by the uid of the pod."""

    def __init__(self) -> None:
        self._claims: dict[NodeName, dict[PodUID, Claims]] = {}
        self._homes: dict[PodUID, NodeName] = {}
        self._places: dict[NodeName, _Places] = {}

    def device_of(self, group: str, node: NodeName, planned: DeviceUUID) -> DeviceUUID:
        """Where a pod without a GPU counts that is to join the group: its plan may be older than that of the group."""
        return self._places.get(node, _NOWHERE).all.get(group, planned)

    def slot_of(self, group: str, node: NodeName, slot: DeviceUUID) -> DeviceUUID:
        """Where a pod of the group counts that has a GPU, known by the slot that was planned."""
        return self._places.get(node, _NOWHERE).moved.get(group, slot) if is_slot(slot) else slot

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

    def move(self, node: NodeName, devices: NodeDevices) -> set[str]:
        """Bring the groups of a node in line with its claims and devices; says which of them have moved."""
        before, after = self._places.pop(node, _NOWHERE), _placed(self._claims.get(node, {}), devices)
        if after.all:
            self._places[node] = after
        changed = (before.all.items() ^ after.all.items()) | (before.moved.items() ^ after.moved.items())
        return {group for group, _ in changed}


class _Places(NamedTuple):
    """By group: its device, if the node has it, and the same for those that do not count where they were planned."""

    all: Mapping[str, DeviceUUID] = {}
    moved: Mapping[str, DeviceUUID] = {}


_NOWHERE = _Places()


def _placed(claims: Mapping[PodUID, Claims], devices: NodeDevices) -> _Places:
    by_group: dict[str, list[Claim]] = {}
    for each in claims.values():
        for group, claim in each.items():
            by_group.setdefault(group, []).append(claim)
    counted = {group: min(each, key=_order) for group, each in by_group.items()}
    found = {group: claim.uuid if claim.uuid in devices.known else claim.device for group, claim in counted.items()}
    planned = {group: device for group, device in found.items() if device in devices.known}
    owners = _owners(claims, devices)
    free = iter([each for each in devices.usable if each not in owners and each not in planned.values()])
    others: dict[tuple[DeviceUUID, str], DeviceUUID] = {}
    moved: dict[str, DeviceUUID] = {}
    for group in sorted(planned, key=lambda group: (not counted[group].uuid, group)):
        owner = counted[group].uuid or group
        taken = (planned[group], owner)
        if owners.setdefault(planned[group], owner) == owner:
            continue
        if taken not in others and (device := next(free, None)) is not None:
            others[taken] = device
        if taken in others:
            moved[group] = others[taken]
    return _Places(planned | moved, moved)


def _owners(claims: Mapping[PodUID, Claims], devices: NodeDevices) -> dict[DeviceUUID, str]:
    """Who has a device for certain: a GPU that is known, a group whose reservation pod has it, or another pod."""
    found: dict[DeviceUUID, str] = {}
    for uid, held in devices.held.items():
        owner = next((claim.uuid or group for group, claim in claims.get(uid, {}).items()), uid)
        found.update(dict.fromkeys(held, owner))
    uuids = {claim.uuid for each in claims.values() for claim in each.values()} & devices.known
    return found | {uuid: uuid for uuid in uuids}


def _order(claim: Claim) -> tuple[bool, Source, DeviceUUID, str]:
    return not claim.uuid, claim.source, claim.device, claim.uuid
