"""Reservations that are of no use any more: their node is gone, or somebody else has taken the place.

Whoever they were made for is planned for again once they are released.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from apportion.apis import names
from apportion.apis.identities import NodeName
from apportion.core.evictions import trials
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import Reservation
from apportion.core.node import PODS, NodeState


def lost(fleet: Fleet, changed: AbstractSet[NodeName] | None = None) -> list[Reservation]:
    """As soon as everybody who terminates is gone, these would not fit beside the pods and the other reservations. If
    several reservations of a node do not fit together, the last ones by key are lost. Only `changed` nodes are looked
    at, if that is said."""
    found: list[Reservation] = []
    reserved = {each.node for each in fleet.reservations.values()}
    for name in sorted(reserved if changed is None else reserved & changed):
        node = fleet.nodes[name]
        with trials.trial(fleet):
            trials.clear(fleet, node)
            for key in sorted(node.reserved, reverse=True):
                reservation = node.reserved[key]
                if not _fits(fleet, node, reservation):
                    found.append(reservation)
                    fleet.release_reservation(key)
    return found


def _fits(fleet: Fleet, node: NodeState, reservation: Reservation) -> bool:
    held = (PODS, *reservation.resources, *((names.NVIDIA_GPU,) if reservation.shares else ()))
    if any(node.free(resource) < 0 for resource in held):
        return False
    gpus = reservation.resources.get(names.NVIDIA_GPU, 0)
    if node.gpus and len(node.reserved_devices.get(reservation.key, ())) < gpus:
        return False
    return _slices_fit(fleet, node, reservation) and _shares_fit(node, reservation)


def _slices_fit(fleet: Fleet, node: NodeState, reservation: Reservation) -> bool:
    for number, placement in enumerate(reservation.slices):
        gpu = node.gpus.get(placement.gpu)
        held = fleet.slices.get(f"{reservation.key}/{number}")
        if gpu is None or held is None or not gpu.facts.healthy or not gpu.facts.mig:
            return False
        if not gpu.legal_beside_others(held):
            return False
    return True


def _shares_fit(node: NodeState, reservation: Reservation) -> bool:
    for uuid, _ in reservation.shares:
        gpu = node.gpus.get(uuid)
        if gpu is None or not gpu.facts.healthy or gpu.facts.mig or gpu.whole is not None:
            return False
        if gpu.shared_mib > gpu.memory_mib:
            return False
    return True
