"""Devices that exist before a pod asks for them: whole GPUs and static slices.

Their ids are their uuids, an ordinary scheduler counts them, no claim is written. What a container sees is
still decided in `PreStartContainer`: only then does the kubelet's record name everything that it holds, and
of several lists in the environment a runtime would keep only one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from apportion.apis import names, profiles
from apportion.apis.identities import DeviceUUID
from apportion.apis.kubelet import deviceplugin_pb2 as wire
from apportion.node.container import cdi, preparation
from apportion.node.container.cdi import CdiFolder
from apportion.node.container.last_container import LastContainer
from apportion.node.hardware import partitioner
from apportion.node.hardware.partitioner import Gpu, Partitioner
from apportion.node.kubelet.allocations import Allocations
from apportion.node.kubelet.device_holders import DeviceHolders, names_existing_devices
from apportion.node.kubelet.device_plugin import Device
from apportion.node.kubelet.prestart_errors import NotRecorded

log = logging.getLogger(__name__)


def devices(gpus: Sequence[Gpu], draining: frozenset[str], held: Callable[[], set[str]]) -> dict[str, list[Device]]:
    """The devices for the kubelet, by resource. `nvidia.com/gpu` is always included, possibly without devices."""
    found: dict[str, list[Device]] = {names.NVIDIA_GPU: []}
    kept = held() if draining else set[str]()
    for gpu in gpus:
        if not gpu.sliced:
            healthy = gpu.healthy and (gpu.uuid not in draining or gpu.uuid in kept)
            found[names.NVIDIA_GPU].append(Device(gpu.uuid, healthy))
        for entry in gpu.fixed or ():
            healthy = gpu.healthy and (gpu.uuid not in draining or entry.uuid in kept)
            resource = profiles.nvidia_resource(entry.place.profile)
            found.setdefault(resource, []).append(Device(entry.uuid, healthy))
    return found


class ExistingDevices:
    def __init__(
        self,
        *,
        driver: Partitioner,
        allocations: Allocations,
        holders: DeviceHolders,
        last_container: LastContainer,
        folder: CdiFolder,
        patience: float,
    ) -> None:
        self._driver = driver
        self._allocations = allocations
        self._holders = holders
        self._last_container = last_container
        self._folder = folder
        self._patience = patience

    def allocate(self, resource: str, ids: Sequence[str]) -> wire.ContainerAllocateResponse:
        self._holders.allocated_now(ids)
        return preparation.allocate(resource, ids)

    async def prepare(self, resource: str, ids: Sequence[str]) -> None:
        """Write a CDI file with all devices of the container that holds these ids."""
        holder = await self._allocations.holder(resource, ids, patience=self._patience)
        container = await self._last_container.of(holder.pod_uid, holder.containers)
        recorded = self._allocations.holdings(names_existing_devices, holder.pod_uid)
        mine = [holding for holding in recorded if container in holding.containers]
        uuids = await self._ordered(set().union(*(holding.ids for holding in mine)))
        for holding in mine:
            if await self._last_container.of(holder.pod_uid, holding.containers) != container:
                continue  # a later container keeps these ids, and its own call describes it
            name = cdi.device_name(holding.resource, holding.ids)
            mounts = await partitioner.mounts(self._driver, name, uuids)
            environment = self._driver.environment(uuids)
            devices = await partitioner.device_nodes(self._driver, uuids)
            owner = cdi.Owner(holder.pod_uid, holding.containers)
            self._folder.write(name, owner, environment, mounts=mounts, devices=devices)
        log.info("pod %s container %s: prepared devices %s", holder.pod_uid, container, ", ".join(uuids))

    async def _ordered(self, ids: set[str]) -> list[DeviceUUID]:
        """As they lie on the node: by GPU, then by place."""
        gpus = await self._driver.discover()
        known = [gpu.uuid for gpu in gpus]
        known += [entry.uuid for gpu in gpus for entry in gpu.fixed or ()]
        missing = ids - set(known)
        if missing:
            raise NotRecorded(f"devices are no longer on this node: {', '.join(sorted(missing))}")
        return [each for each in known if each in ids]
