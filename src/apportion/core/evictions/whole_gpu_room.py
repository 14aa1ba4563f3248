"""Room on one node for pods that ask for whole GPUs, or for none, worked out by counting, without trying it out.

What is terminating counts as gone, and everything that is reserved as taken. A GPU is free when nobody holds it or has
a share of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from apportion.apis import names
from apportion.apis.identities import DeviceUUID, PodUID
from apportion.apis.request import Request
from apportion.core.fleet import Fleet
from apportion.core.node import PODS, NodeState

_FOR_EVER = PodUID("")  # somebody who is not evicted


class WholeGpuRoom:
    """What one more pod like `request` lacks on a node, after pods that are `gone` and with others `placed`."""

    __slots__ = ("_blocked", "_idle", "_node", "_uncounted", "_wanted", "lacking")

    def __init__(
        self, fleet: Fleet, node: NodeState, request: Request, gone: AbstractSet[PodUID], placed: Sequence[Request]
    ) -> None:
        assert node.facts is not None
        self._node = node
        self._wanted = request.whole_gpus
        leaving = [uid for uid in node.pods if uid in fleet.releasing or uid in gone]
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
        self._uncounted = 0
        if self._wanted and node.gpus:
            self._look_at_gpus(fleet, set(leaving))

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
                if not self._holds_whole(uid):
                    self._count(-1)

    def _holds_whole(self, uid: PodUID) -> bool:
        return self._node.pods[uid].whole_gpus > 0

    def _give(self, resources: Mapping[str, int], sign: int) -> None:
        lacking = self.lacking
        for resource, amount in resources.items():
            if resource in lacking:
                lacking[resource] -= sign * amount
        lacking[PODS] -= sign

    def _look_at_gpus(self, fleet: Fleet, leaving: set[PodUID]) -> None:
        node = self._node
        shared = 0
        for uuid, gpu in node.gpus.items():
            if gpu.facts.mig or not gpu.facts.healthy or gpu.slices:
                continue
            holders = self._holders(fleet, uuid, leaving)
            shared += bool(gpu.shares) and bool(holders)
            if not holders:
                self._idle += 1
            for uid in holders:
                self._blocked.setdefault(uid, []).append(holders)
        self._uncounted = shared - node.reservation_pods
        if names.NVIDIA_GPU in self.lacking:
            self.lacking[names.NVIDIA_GPU] += max(0, self._uncounted)

    def _count(self, change: int) -> None:
        """Shared GPUs whose reservation pod is not there yet are not in the numbers of the kubelet."""
        before = max(0, self._uncounted)
        self._uncounted += change
        if names.NVIDIA_GPU in self.lacking:
            self.lacking[names.NVIDIA_GPU] += max(0, self._uncounted) - before

    def _holders(self, fleet: Fleet, uuid: DeviceUUID, leaving: set[PodUID]) -> set[PodUID]:
        gpu = self._node.gpus[uuid]
        holders = {fleet.shares[key].owner for key in gpu.shares} if gpu.shares else set()
        if gpu.whole is not None and gpu.whole not in self._node.reserved:
            holders.add(PodUID(gpu.whole))
        if gpu.reservation is not None:
            holders.add(_FOR_EVER)
        return holders - leaving
