"""Places for the successors of pods that an earlier leader moved: which of them are still kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from apportion.apis.identities import NodeName, PodUID
from apportion.core.evictions import lost_places
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import Reservation
from apportion.core.groups import successor_key


class KeptPlace(NamedTuple):
    """`pod` was moved, `since` is when that was planned (a date as Kubernetes writes it)."""

    pod: PodUID
    since: str
    reservation: Reservation


def keep_again(fleet: Fleet, written: Iterable[KeptPlace]) -> list[Reservation]:
    """Reserve those that somebody still needs. That is not so if the pod was not evicted after all, if its successor
    has a node already, or if the place is gone."""
    open_places = [each for each in written if _moved(fleet, each) and _exists(fleet, each.reservation)]
    for place in _used(fleet, open_places):
        open_places.remove(place)
    reserved = []
    for place in open_places:
        after = tuple(uid for uid in place.reservation.after if uid in fleet.releasing)
        reservation = place.reservation._replace(after=after)
        fleet.reserve(reservation)
        reserved.append(reservation)
    lost = {each.key for each in lost_places.lost(fleet)}
    for key in lost:
        fleet.release_reservation(key)
    return [each for each in reserved if each.key not in lost]


def _moved(fleet: Fleet, place: KeptPlace) -> bool:
    return place.pod not in fleet.pod_nodes or place.pod in fleet.releasing


def _exists(fleet: Fleet, reservation: Reservation) -> bool:
    node = fleet.nodes.get(reservation.node)
    return node is not None and node.facts is not None


def _used(fleet: Fleet, places: list[KeptPlace]) -> list[KeptPlace]:
    """One place for each pod of the same controller that was created since and has a node: on that node, if any."""
    by_owner: dict[str, list[KeptPlace]] = {}
    for place in places:
        by_owner.setdefault(place.reservation.owner, []).append(place)
    used: list[KeptPlace] = []
    for owner, node, created in _owned_pods(fleet) if by_owner else ():
        since = [place for place in by_owner.get(owner, ()) if place.since <= created]
        if since:
            found = next((place for place in since if place.reservation.node == node), since[0])
            by_owner[owner].remove(found)
            used.append(found)
    return used


def _owned_pods(fleet: Fleet) -> Iterable[tuple[str, NodeName, str]]:
    for uid in sorted(fleet.pod_nodes):
        node = fleet.pod_nodes[uid]
        request = fleet.nodes[node].pods[uid]
        if request.owner is not None and uid not in fleet.releasing:
            yield successor_key(request), node, request.created
