"""Places that are kept: for whom others were evicted, and for the successors of pods that were moved.

A place for a pod is written down as its nominated node, a place for a successor as a note (see `place_notes`), for a
while. A new leader reserves them again.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from apportion.apis.identities import NodeName, PodUID
from apportion.apis.request import Request
from apportion.core import refusals
from apportion.core.cluster_changes import Happened
from apportion.core.evictions import lost_places, nominations, successor_places
from apportion.core.evictions.successor_places import KeptPlace
from apportion.core.fleet_facts import Reservation
from apportion.core.groups import Group
from apportion.core.operations import KeepPlaces, Reserve
from apportion.core.policies import Policy
from apportion.core.reasons import Code
from apportion.core.refusals import Refusal
from apportion.core.statement import Statement
from apportion.scheduler.commits import Committer
from apportion.view import kept_places
from apportion.view.view import View

log = logging.getLogger(__name__)

OTHER_LEADER_SECONDS = 5.0  # for somebody else to do what it has written down
UNUSED_SECONDS = 2 * OTHER_LEADER_SECONDS  # that a nomination outlasts its place
WITHDRAWN_AT_ONCE = 20  # nominations; the cycle waits for it, so that nobody is nominated meanwhile


class Reservations:
    """Knows which reservation belongs to which pod that waits."""

    def __init__(self, view: View, policy: Policy, now: Callable[[], float]) -> None:
        self._view, self._policy, self._now = view, policy, now
        self._of_pods: dict[PodUID, str] = {}
        self._nominated: dict[PodUID, NodeName] = {}  # by us, or by whoever led before
        self._others: dict[tuple[PodUID, NodeName], float] = {}  # nominations by somebody else, since when
        self._expiring: list[tuple[float, str]] = []
        self._seen = 0  # position in the log of nodes that changed

    def made(self, statement: Statement) -> None:
        for operation in statement.operations:
            if isinstance(operation, Reserve):
                self._of_pods[operation.request.uid] = operation.reservation.key
                self._nominated[operation.request.uid] = operation.reservation.node
            elif isinstance(operation, KeepPlaces):
                for reservation in operation.reservations:
                    self._expire(reservation, kept_places.SUCCESSOR_SECONDS)

    def kept(self, statement: Statement) -> bool:
        """Everything that it reserves is still reserved: nobody has another place, or needs none any more."""
        return all(self._view.fleet.reservations.get(each.key) == each for each in _reserved(statement))

    def pod_gone(self, uid: PodUID) -> None:
        """The pod waits no longer: it has its place, or needs none."""
        self._nominated.pop(uid, None)
        key = self._of_pods.pop(uid, None)
        if key is not None:
            self._release(key)

    def of_another_leader(self, group: Group) -> bool:
        """Somebody else makes room for the group at this very time: what it has written down is reserved here too, or
        it is given some time. True if nothing has to be planned now."""
        now = self._now()
        self._others = {key: since for key, since in self._others.items() if now - since < 2 * OTHER_LEADER_SECONDS}
        found = False
        for pod in group.members:
            node = self._view.pods.nominated.get(pod.uid)
            if node and self._nominated.get(pod.uid) != node:
                since = self._others.setdefault((pod.uid, node), now)
                self.hold(pod, node)
                found = found or pod.uid in self._of_pods or now - since < OTHER_LEADER_SECONDS
        return found

    def hold(self, request: Request, node: NodeName) -> None:
        """For a pod that could not be bound there, until it is tried again."""
        fleet = self._view.fleet
        found = nominations.reserve_again(fleet, request, node, self._policy)
        if found is not None and found.key not in fleet.reservations:
            fleet.reserve(found)
            self._of_pods[request.uid] = found.key

    def withdrawn(self, reserved: Iterable[Reserve]) -> None:
        """They were not kept: whatever the cluster has shown of them meanwhile does not count."""
        for operation in reserved:
            self._of_pods.pop(operation.request.uid, None)
            self._view.assumptions.drop(operation)
            self._view.fleet.release_reservation(operation.reservation.key)

    def give_up(self, group: str) -> None:
        """The group cannot have its turn: its places are for others."""
        for reservation in self._view.fleet.reservations_for(group):
            self._release(reservation.key)

    def forget(self, request: Request) -> None:
        """Its place was reserved again, because its statement was undone; but meanwhile the pod is gone."""
        self._release(nominations.reservation_key(request, request.group_key))

    def waits(self, group: Group) -> Refusal | None:
        """What a group with a reserved place waits for; None if nothing is in its way there, so it has to have
        another place."""
        fleet = self._view.fleet
        kept = fleet.reservations_for(group.key)
        leaving = {uid for each in kept for uid in each.after if uid in fleet.pod_nodes or fleet.holds(uid)}
        if leaving:
            nodes = ", ".join(sorted({each.node for each in kept}))
            return refusals.of_pod(group.members[0], Code.MAKING_ROOM, nodes, len(leaving))
        for each in kept:
            fleet.release_reservation(each.key)
        return None

    def release_useless(self) -> None:
        """Successors that did not come, and places that somebody else has or whose node is gone."""
        fleet = self._view.fleet
        if fleet.reservations:
            lost = lost_places.lost(fleet, fleet.log.since(self._seen))
            self._seen = fleet.log.end
            for reservation in lost:
                log.info("the place of %s on node %s is lost", reservation.owner, reservation.node)
                self._release(reservation.key)
        while self._expiring and self._expiring[0][0] <= self._now():
            self._release(heapq.heappop(self._expiring)[1])

    def next_time(self) -> float | None:
        """When a place is given up by the clock alone."""
        return self._expiring[0][0] if self._expiring else None

    def restore(self, kept: Sequence[tuple[KeptPlace, float]]) -> set[str]:
        """What an earlier leader promised; `kept` are places for successors, and for how many seconds. The groups for
        which that cannot be kept any more: they have to be planned for again as a whole."""
        seconds = {place.reservation.key: left for place, left in kept}
        for reservation in successor_places.keep_again(self._view.fleet, [place for place, _ in kept]):
            self._expire(reservation, seconds[reservation.key])
            log.info("the place on node %s is kept for the successor of a pod that was moved", reservation.node)
        broken: set[str] = set()
        for request, node in self._view.waiting.nominated():
            self._nominated[request.uid] = node
            found = nominations.reserve_again(self._view.fleet, request, node, self._policy)
            if found is None:
                broken.add(request.group_key)
                continue
            self._view.fleet.reserve(found)
            self._of_pods[request.uid] = found.key
            log.info("pod %s keeps its place on node %s", request.key, node)
        for group in broken:
            self.give_up(group)
        return broken

    def _expire(self, reservation: Reservation, seconds: float) -> None:
        heapq.heappush(self._expiring, (self._now() + seconds, reservation.key))

    def _release(self, key: str) -> None:
        reservation = self._view.fleet.reservations.get(key)
        if reservation is not None:
            self._view.fleet.release_reservation(key)
            self._view.changes.note(Happened.POD_GONE, reservation.node)


class UnusedNominations:
    """Nominated nodes of pods for which nothing is reserved any more.

    A place can be lost, or the queue is no longer entitled to it. The name of the node stays on the pod for a while, so
    that a leader that takes over plans for the pod first. After that it would only mislead: people, kube-scheduler,
    which keeps room for nominated pods, and the next leader, which would reserve the place out of turn.
    """

    def __init__(self, view: View, committer: Committer, now: Callable[[], float]) -> None:
        self._view, self._committer, self._now = view, committer, now
        self._since: dict[tuple[PodUID, NodeName], float] = {}

    async def withdraw(self) -> None:
        now = self._now()
        unused = {(request.uid, node): request for request, node in self._unused()}
        self._since = {key: self._since.get(key, now) for key in unused}
        due = [key for key, since in self._since.items() if now - since >= UNUSED_SECONDS][:WITHDRAWN_AT_ONCE]
        if due:
            await self._committer.withdraw([(unused[key], key[1]) for key in due])
        for key in due:
            self._since[key] = now  # until the cluster shows it

    def next_time(self) -> float | None:
        return min(self._since.values()) + UNUSED_SECONDS if self._since else None

    def _unused(self) -> Iterator[tuple[Request, NodeName]]:
        fleet = self._view.fleet
        for uid, node in self._view.pods.nominated.items():
            waiting = self._view.waiting.get(uid)
            request = waiting.reading.request if waiting is not None and not waiting.held else None
            if request is None or uid in fleet.pod_nodes:
                continue
            reservation = fleet.reservations.get(nominations.reservation_key(request, request.group_key))
            if reservation is None or reservation.node != node:
                yield request, node


def _reserved(statement: Statement) -> Iterator[Reservation]:
    for operation in statement.operations:
        if isinstance(operation, Reserve):
            yield operation.reservation
        elif isinstance(operation, KeepPlaces):
            yield from operation.reservations
