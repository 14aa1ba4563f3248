"""Who holds the devices that a kubelet allocates by id: whole GPUs and static slices.

The kubelet's checkpoint names the pods, but keeps those that have ended until devices are requested
again. So a device is held while its pod has not ended by the API, or while the kernel still runs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from apportion.apis import names, profiles
from apportion.apis.custom_resources.accelerators import DeviceHolder, HolderKind
from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.node.cluster import pod_lifecycle
from apportion.node.cluster.pod_watch import PodWatch
from apportion.node.container.cgroups import Cgroups
from apportion.node.kubelet.allocations import Allocations, Holding

RECORD_SECONDS = 10.0  # from Allocate to the kubelet's record, and to our own copy of the pod


def names_existing_devices(resource: str) -> bool:
    """Is this a resource whose ids are devices that exist?"""
    return resource == names.NVIDIA_GPU or profiles.nvidia_profile(resource) is not None


class DeviceHolders:
    def __init__(
        self, allocations: Allocations, pods: PodWatch, cgroups: Cgroups, *, node: NodeName, reservation_namespace: str
    ) -> None:
        self._allocations = allocations
        self._pods = pods
        self._cgroups = cgroups
        self._node = node
        self._reservation_namespace = reservation_namespace
        self._recent: dict[str, float] = {}

    def allocated_now(self, ids: Iterable[str]) -> None:
        """The kubelet was given these ids a moment ago, and may not have written it down yet."""
        until = asyncio.get_running_loop().time() + RECORD_SECONDS
        self._recent.update(dict.fromkeys(ids, until))

    def live(self) -> list[Holding]:
        """Holdings of pods that have not ended."""
        found = self._allocations.holdings(names_existing_devices)
        for holding in found:
            if self._pods.get(holding.pod_uid) is not None:  # from here on the record and the API decide
                for each in holding.ids:
                    self._recent.pop(each, None)
        alive = {uid for uid in {holding.pod_uid for holding in found} if self._lives(uid)}
        return [holding for holding in found if holding.pod_uid in alive]

    def by_device(self) -> dict[DeviceUUID, DeviceHolder]:
        """The holder of each device, as reported in the NodeAccelerator."""
        return {
            DeviceUUID(device): DeviceHolder(pod_uid=holding.pod_uid, kind=self._kind(holding))
            for holding in self.live()
            for device in holding.ids
        }

    def allocated(self, resource: str) -> frozenset[str]:
        """Ids of any resource that pods hold which have not ended."""
        entries = [entry for entry in self._allocations.read().entries() if entry.resource_name == resource]
        return frozenset[str]().union(*(entry.ids() for entry in entries if self._lives(PodUID(entry.pod_uid))))

    def held(self) -> set[str]:
        """Every device id that must stay as it is."""
        now = asyncio.get_running_loop().time()
        live = self.live()
        self._recent = {each: until for each, until in self._recent.items() if until > now}
        return set(self._recent).union(*(holding.ids for holding in live))

    def _kind(self, holding: Holding) -> HolderKind:
        if holding.resource != names.NVIDIA_GPU:
            return "static"
        pod = self._pods.get(holding.pod_uid)
        reserves = pod is not None and pod.metadata.namespace == self._reservation_namespace
        return "reservation" if reserves else "whole"

    def _lives(self, uid: PodUID) -> bool:
        return not pod_lifecycle.of(self._pods.get(uid), uid, self._node).over or self._cgroups.running(uid)
