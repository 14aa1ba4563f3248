"""Reservation pods on the API server: read, created, and changed only if they are still as they were read.

Who shares a GPU is written on its reservation pod. It is created together with its first sharer; every later change of
the sharers is a compare-and-swap, and it is deleted only at the version at which nobody was left. So of a pod that
joins and the last one that ends, one wins and the other sees it, also if two binders believe that they lead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from weakref import WeakValueDictionary

from apportion.apis import names
from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.apis.installation import Installation
from apportion.apis.kinds import PODS
from apportion.apis.pods import Pod
from apportion.apis.shared_gpus import Sharer, encode_sharers
from apportion.binder import reservation_pods
from apportion.binder.leased_writes import LeasedWrites, as_pod
from apportion.binder.sharing_config import SharingConfig
from apportion.cluster import errors
from apportion.cluster.client import Client

log = logging.getLogger(__name__)


class ReservationStore:
    """Reservation pods by name; all are in one namespace."""

    def __init__(self, client: Client, writes: LeasedWrites, installation: Installation, config: SharingConfig) -> None:
        self._client = client
        self._writes = writes
        self._installation = installation
        self._config = config
        self._namespace = installation.reservation_namespace
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def lock(self, group: str) -> asyncio.Lock:
        """Spares this process conflicts with itself; nothing more depends on it."""
        return self._locks.setdefault(group, asyncio.Lock())

    async def get(self, name: str) -> Pod | None:
        try:
            return await self._client.get(PODS, name, namespace=self._namespace, into=Pod)
        except errors.NotFound:
            return None

    async def create(
        self, node: NodeName, group: str, planned: DeviceUUID, sharers: Mapping[PodUID, Sharer], why: str
    ) -> Pod:
        """Raises AlreadyExists if there is one."""
        wanted = reservation_pods.body(
            self._installation, self._config, node=node, group=group, planned=planned, sharers=sharers
        )
        made = as_pod(await self._writes.create(PODS, wanted, self._namespace))
        log.info(
            "created GPU reservation %s on node %s for group %s, planned GPU %s: %s",
            *(made.metadata.name, node, group, planned, why),
        )
        return made

    async def set_sharers(self, reservation: Pod, sharers: Mapping[PodUID, Sharer]) -> Pod:
        """Raises Conflict if the reservation has changed since it was read."""
        meta = reservation.metadata
        changed = {
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
            "annotations": {names.SHARERS: encode_sharers(sharers)},
        }
        return as_pod(await self._writes.patch(PODS, meta.name, {"metadata": changed}, self._namespace))

    async def delete(self, reservation: Pod, why: str) -> None:
        """Raises Conflict if the reservation has changed since it was read: somebody may have joined."""
        meta = reservation.metadata
        started = reservation.status.start_time is not None  # else no kubelet has seen it
        try:
            await self._writes.delete(
                PODS,
                meta.name,
                self._namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
                grace=None if started else 0,
            )
        except errors.NotFound:
            return
        log.info("deleted GPU reservation %s on node %s: %s", meta.name, reservation.spec.node_name, why)


def held_gpu(reservation: Pod) -> DeviceUUID:
    """The GPU that the kubelet gave it; empty if it has none yet."""
    return DeviceUUID(reservation.metadata.annotations.get(names.RESERVED_GPU, ""))


def planned_gpu(reservation: Pod) -> DeviceUUID:
    """The GPU that it was created for; empty on those of other programs."""
    return DeviceUUID(reservation.metadata.annotations.get(names.PLANNED_GPU, ""))
