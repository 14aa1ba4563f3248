"""The GPUs as the driver reports them, checked periodically, and the devices that the kubelet is offered."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from apportion.node.hardware.layouts import Layouts
from apportion.node.hardware.partitioner import Gpu, Partitioner, PartitionError, Unavailable
from apportion.node.kubelet import capacity, device_holders, existing_devices
from apportion.node.kubelet.allocations import Allocations
from apportion.node.kubelet.device_holders import DeviceHolders
from apportion.node.kubelet.device_plugin import Device
from apportion.node.kubelet.plugins import Plugins
from apportion.node.kubelet.registration import Registrar

log = logging.getLogger(__name__)


class GpuInventory:
    """The node's GPUs as last seen. `fault` says why nothing is known."""

    def __init__(
        self,
        driver: Partitioner,
        registrar: Registrar,
        allocations: Allocations,
        holders: DeviceHolders,
        layouts: Layouts,
        plugins: Plugins,
    ) -> None:
        self._driver = driver
        self._registrar = registrar
        self._allocations = allocations
        self._holders = holders
        self._plugins = plugins
        self.layouts = layouts
        self._annotations: Mapping[str, str] | None = None
        self.gpus: Sequence[Gpu] = ()
        self.fault: PartitionError | None = None
        self._offer = True

    async def look(self, annotations: Mapping[str, str] | None, *, offer: bool = True) -> None:
        """Query the driver and update the device plugins.

        `annotations` are those of the Node; None if it does not exist: its GPUs stay as they are until it is back.
        Without `offer` only devices that containers hold are healthy.
        """
        self._offer = offer
        annotations = self._annotations if annotations is None else annotations
        if annotations is None:
            self.fault = Unavailable("the Node object does not exist")
            return
        try:
            if annotations != self._annotations:
                await self._driver.configure(annotations)
                self._annotations = dict(annotations)
            self.gpus = await self._driver.discover()
            if await self.layouts.apply(annotations, self.gpus):
                self.gpus = await self._driver.discover()
            self.gpus = self.layouts.waiting(self.gpus)
        except PartitionError as error:
            if str(error) != str(self.fault):
                log.warning("%s", error)
            self.fault = error
            return
        self.fault = None
        if not offer:  # another plugin serves NVIDIA's own names here
            for resource in [
                each.resource
                for each in self._registrar.plugins()
                if device_holders.names_existing_devices(each.resource)
            ]:
                await self._registrar.remove(resource)
        self._announce(capacity.amounts(self.gpus))

    def _announce(self, amounts: Mapping[str, capacity.Amount]) -> None:
        for resource, amount in amounts.items():
            if self._registrar.get(resource) is None and amount.total:
                self._registrar.add(self._plugins.make(resource))
        existing = self._existing()
        for resource in existing:
            if self._registrar.get(resource) is None:
                self._registrar.add(self._plugins.make(resource))
        for plugin in self._registrar.plugins():
            if device_holders.names_existing_devices(plugin.resource):
                plugin.announce(existing.get(plugin.resource, []))
            else:
                plugin.announce(self._devices(plugin.resource, amounts.get(plugin.resource, capacity.Amount())))

    def _existing(self) -> dict[str, list[Device]]:
        if not self._offer or not self._driver.kind.startswith("nvidia"):
            return {}
        return existing_devices.devices(self.gpus, self.layouts.draining, self._holders.held)

    def _devices(self, resource: str, amount: capacity.Amount) -> list[Device]:
        allocated = self._allocations.allocated(resource)
        ids = capacity.device_ids(resource, amount.total)
        if allocated.difference(ids):
            ids = capacity.keep_allocated(ids, self._holders.allocated(resource))
        if self._offer and amount.healthy == amount.total:
            return [Device(name) for name in ids]
        healthy = capacity.choose_healthy(ids, amount.healthy, allocated) if self._offer else set(allocated)
        if self.layouts.draining:  # what runs on a GPU that takes nothing new must survive a restart of the kubelet
            healthy |= allocated
        return [Device(name, name in healthy) for name in ids]
