"""What pods that wait ask of their queues, kept in step pod by pod."""

from __future__ import annotations

from apportion.apis.identities import PodUID, QueueName
from apportion.apis.request import Request
from apportion.core import group_turns
from apportion.core.fleet import Fleet
from apportion.core.queues.amounts import NOTHING, Amounts


class Demand:
    """A pod that has a place, or for which one is reserved, is no part of it: its queue is charged."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._stock = fleet.stock
        self._pods: dict[PodUID, tuple[Request, Amounts]] = {}
        self._queues: dict[QueueName, Amounts] = {}

    def add(self, request: Request) -> None:
        self.remove(request.uid)
        amounts = group_turns.wanted(self._fleet, request)
        self._pods[request.uid] = (request, amounts)
        self._queues[request.queue] = self._queues.get(request.queue, NOTHING).plus(amounts)

    def remove(self, uid: PodUID) -> None:
        known = self._pods.pop(uid, None)
        if known is not None:
            request, amounts = known
            self._queues[request.queue] = self._queues[request.queue].minus(amounts)

    def of_queues(self) -> dict[QueueName, Amounts]:
        """What is held and asked for, by queue."""
        if self._stock != self._fleet.stock:
            self._count_anew()
        accounts = self._fleet.accounts
        found = {name: accounts.used(name) for name in accounts.tree.queues if not accounts.tree.children(name)}
        for name, amounts in self._queues.items():
            if name in found:
                found[name] = found[name].plus(amounts)
        return found

    def _count_anew(self) -> None:
        """What a pod counts for depends on the GPUs that there are."""
        self._stock = self._fleet.stock
        for request, _ in list(self._pods.values()):
            self.add(request)
