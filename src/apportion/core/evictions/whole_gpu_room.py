"""Room on one node for pods that ask for whole GPUs, or for none, worked out by counting, without trying it out.

What is terminating counts as gone, and everything that is reserved as taken. A GPU is free when nobody holds it or has
a share of it; the pod that holds a shared GPU goes with the last one that shares it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from apportion.apis import names
from apportion.apis.identities import DeviceUUID, PodUID
from apportion.apis.request import Request
from apportion.core.evictions import reservation_pods
from apportion.core.fleet import Fleet
from apportion.core.node import PODS, NodeState


class WholeGpuRoom:
    """What one more pod like `request` lacks on a node, after pods that are `gone` and with others `placed`."""

    __slots__ = ("_blocked", "_idle", "_node", "_sharers", "_uncounted", "_wanted", "lacking")

    def __init__(
        self, fleet: Fleet, node: NodeState, request: Request, gone: AbstractSet[PodUID], placed: Sequence[Request]
    ) -> None:
        assert node.facts is not None
        self._node = node
        self._wanted = request.whole_gpus
        here = [uid for uid in gone if uid in node.pods]
        leaving = {*here, *reservation_pods.leaving(fleet, node, here)}
        allocatable, used = node.facts.allocatable, node.used
        self.lacking = {
            resource: need - allocatable.get(resource, 0) + used.get(resource, 0)
            for resource, need in request.resources.items()
        }
        self.lacking[PODS] = 1 - allocatable.get(PODS, 0) + len(node.pods)
        for uid in leaving:
            self._give(node.pods[uid].resources, 1)
        for other in node.reserved.values():
            self._give(other.resources, -1)
        for other_request in placed:
            self._give(other_request.resources, -1)
        self._idle = -sum(each.resources.get(names.NVIDIA_GPU, 0) for each in node.reserved.values())
        self._idle -= sum(each.whole_gpus for each in placed)
        self._blocked: dict[PodUID, list[set[PodUID]]] = {}
        found = reservation_pods.sharers(fleet, node)
        self._sharers = {uid: pods - leaving for uid, pods in found.items() if uid not in leaving}
        self._uncounted = 0
        if node.gpus:
            self._look_at_gpus(fleet, leaving)

    @property
    def fits(self) -> bool:
        if any(lack > 0 for lack in self.lacking.values()):
            return False
        return not self._wanted or not self._node.gpus or self._idle >= self._wanted

    def take(self, uid: PodUID) -> None:
        """The pod goes."""
        self._give(self._node.pods[uid].resources, 1)
        for holders in self._blocked.get(uid, ()):
            holders.discard(uid)
            if not holders:
                self._idle += 1
                if not self._node.pods[uid].whole_gpus:
                    self._count(-1)
        for reservation in [each for each, pods in self._sharers.items() if uid in pods]:
            self._sharers[reservation].discard(uid)
            if not self._sharers[reservation]:
                self._take_reservation(reservation)

    def _take_reservation(self, uid: PodUID) -> None:
        """Nobody needs it any more."""
        del self._sharers[uid]
        if not self._node.devices_of(uid):
            self._count(1)
        self.take(uid)

    def _give(self, resources: Mapping[str, int], sign: int) -> None:
        lacking = self.lacking
        for resource, amount in resources.items():
            if resource in lacking:
                lacking[resource] -= sign * amount
        lacking[PODS] -= sign

    def _look_at_gpus(self, fleet: Fleet, leaving: set[PodUID]) -> None:
        node = self._node
        silent = sum(1 for uid, each in node.pods.items() if node.reserves(each) and uid not in leaving)
        unreserved = 0
        for uuid, gpu in node.gpus.items():
            holders = self._holders(fleet, uuid, leaving)
            silent -= gpu.reservation in holders
            unreserved += bool(gpu.shares) and bool(holders) and gpu.reservation not in holders
            if gpu.facts.mig or not gpu.facts.healthy or gpu.slices:
                continue
            if not holders:
                self._idle += 1
            for uid in holders:
                self._blocked.setdefault(uid, []).append(holders)
        self._count(unreserved - silent)

    def _count(self, change: int) -> None:
        """Shared GPUs whose reservation pod is not there yet are not in the numbers of the kubelet."""
        before = max(0, self._uncounted)
        self._uncounted += change
        more = max(0, self._uncounted) - before
        self.lacking[PODS] += more
        if names.NVIDIA_GPU in self.lacking:
            self.lacking[names.NVIDIA_GPU] += more

    def _holders(self, fleet: Fleet, uuid: DeviceUUID, leaving: set[PodUID]) -> set[PodUID]:
        gpu = self._node.gpus[uuid]
        holders = {fleet.shares[key].owner for key in gpu.shares} if gpu.shares else set()
        if gpu.whole is not None and gpu.whole not in self._node.reserved:
            holders.add(PodUID(gpu.whole))
        if gpu.reservation is not None:
            holders.add(PodUID(gpu.reservation))
        return holders - leaving
