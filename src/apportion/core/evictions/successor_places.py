"""Places for the successors of pods that an earlier leader moved: which of them are still kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from apportion.apis.identities import NO_NODE, NodeName, PodUID
from apportion.core.evictions import lost_places, reservation_pods
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import Reservation
from apportion.core.groups import successor_key


class KeptPlace(NamedTuple):
    """`pod`, which was `created` then, was moved; `since` is when that was planned. Dates are as Kubernetes writes
    them."""

    pod: PodUID
    created: str
    since: str
    reservation: Reservation


def keep_again(fleet: Fleet, written: Iterable[KeptPlace]) -> list[Reservation]:
    """Reserve those that somebody still needs. That is not so if the pod was not evicted after all, if its successor
    had a node already, or if the place is gone."""
    places = [each for each in written if _moved(fleet, each) and _exists(fleet, each.reservation)]
    used = _used(fleet, places)
    reserved = []
    for place in places:
        if place.pod not in used:
            leaving = reservation_pods.leaving(fleet, fleet.nodes[place.reservation.node])
            after = tuple(uid for uid in place.reservation.after if uid in leaving)
            reserved.append(place.reservation._replace(after=after))
            fleet.reserve(reserved[-1])
    lost = {each.key for each in lost_places.lost(fleet)} if reserved else set()
    for key in lost:
        fleet.release_reservation(key)
    return [each for each in reserved if each.key not in lost]


def _moved(fleet: Fleet, place: KeptPlace) -> bool:
    return place.pod not in fleet.pod_nodes or place.pod in fleet.releasing


def _exists(fleet: Fleet, reservation: Reservation) -> bool:
    node = fleet.nodes.get(reservation.node)
    return node is not None and node.facts is not None


def _used(fleet: Fleet, places: list[KeptPlace]) -> set[PodUID]:
    """The moved pods whose place was used: each pod of the same controller that was created since and got a node uses
    one place, on that node if there is one."""
    by_owner: dict[str, dict[PodUID, KeptPlace]] = {}
    for place in places:
        by_owner.setdefault(place.reservation.owner, {})[place.pod] = place
    used: set[PodUID] = set()
    for pod in (*_moved_again(places), *_bound(fleet)) if places else ():
        left = by_owner.get(pod.owner, {})
        since = [each for each in left.values() if each.since <= pod.created and each.pod != pod.uid]
        if since:
            found = next((each for each in since if each.reservation.node == pod.node), since[0])
            del left[found.pod]
            used.add(found.pod)
    return used


class _Successor(NamedTuple):
    uid: PodUID
    owner: str
    node: NodeName
    created: str


def _moved_again(places: list[KeptPlace]) -> Iterator[_Successor]:
    """Pods that were moved can be successors themselves."""
    for place in sorted(places, key=lambda each: (each.created, each.pod)):
        yield _Successor(place.pod, place.reservation.owner, NO_NODE, place.created)


def _bound(fleet: Fleet) -> Iterator[_Successor]:
    for uid in sorted(fleet.pod_nodes):
        node = fleet.pod_nodes[uid]
        request = fleet.nodes[node].pods[uid]
        if request.owner is not None and uid not in fleet.releasing:
            yield _Successor(uid, successor_key(request), node, request.created)
