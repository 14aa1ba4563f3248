"""What pods that wait ask of their queues, kept in step pod by pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from apportion.apis.identities import PodUID, QueueName
from apportion.apis.request import Request
from apportion.core import group_turns
from apportion.core.fleet import Fleet
from apportion.core.groups import successor_key
from apportion.core.queues.amounts import NOTHING, Amounts


class Demand:
    """A pod that has a place, or for which one is reserved, is no part of it: its queue is charged.

    A place that is kept for the successor of a pod counts for the first pod of that controller that waits.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._inventory = fleet.inventory
        self._pods: dict[PodUID, tuple[Request, Amounts]] = {}
        self._queues: dict[QueueName, Amounts] = {}
        self._expected: dict[str, dict[PodUID, None]] = {}  # by those whom places are reserved for

    def add(self, request: Request) -> None:
        self.remove(request.uid)
        amounts = group_turns.wanted(self._fleet, request)
        self._pods[request.uid] = (request, amounts)
        self._queues[request.queue] = self._queues.get(request.queue, NOTHING).plus(amounts)
        for owner in _owners(request):
            self._expected.setdefault(owner, {})[request.uid] = None

    def remove(self, uid: PodUID) -> None:
        known = self._pods.pop(uid, None)
        if known is not None:
            request, amounts = known
            self._queues[request.queue] = self._queues[request.queue].minus(amounts)
            for owner in _owners(request):
                expected = self._expected[owner]
                del expected[uid]
                if not expected:
                    del self._expected[owner]

    def of_queues(self) -> dict[QueueName, Amounts]:
        """What is held and asked for, by queue."""
        if self._inventory != self._fleet.inventory:
            self._count_anew()
        accounts = self._fleet.accounts
        found = {name: accounts.used(name) for name in accounts.tree.queues if not accounts.tree.children(name)}
        for name, amounts in self._queues.items():
            if name in found:
                found[name] = found[name].plus(amounts)
        for request, amounts in self._with_reserved_place():
            if request.queue in found:
                found[request.queue] = found[request.queue].minus(amounts)
        return found

    def _with_reserved_place(self) -> Iterator[tuple[Request, Amounts]]:
        known: dict[PodUID, None] = {}
        places = Counter(each.owner for each in self._fleet.reservations.values())
        for owner, count in places.items():
            left = (uid for uid in self._expected.get(owner, ()) if uid not in known)
            known |= dict.fromkeys(islice(left, count))
        return (self._pods[uid] for uid in known)

    def _count_anew(self) -> None:
        """What a pod with a part of a GPU counts for depends on the GPUs that there are."""
        self._inventory = self._fleet.inventory
        for request, _ in list(self._pods.values()):
            if request.share is not None or request.slices:
                self.add(request)


def _owners(request: Request) -> tuple[str, ...]:
    return (request.group_key,) if request.owner is None else (request.group_key, successor_key(request))
