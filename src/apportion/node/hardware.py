"""What the driver says, looked at again and again, and what follows from it for the kubelet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from apportion.node import capacity
from apportion.node.allocations import Allocations
from apportion.node.partitioner import Gpu, Partitioner, PartitionError
from apportion.node.plugin import Device, Plugin
from apportion.node.registration import Registrar

log = logging.getLogger(__name__)

MakePlugin = Callable[[str], Plugin]


class Hardware:
    """The node's GPUs as last seen. `fault` says why nothing is known."""

    def __init__(self, driver: Partitioner, registrar: Registrar, allocations: Allocations, make: MakePlugin) -> None:
        self._driver = driver
        self._registrar = registrar
        self._allocations = allocations
        self._make = make
        self._annotations: Mapping[str, str] | None = None
        self.gpus: Sequence[Gpu] = ()
        self.fault: PartitionError | None = None

    async def look(self, annotations: Mapping[str, str]) -> None:
        """Ask the driver, and tell the kubelet what it has."""
        try:
            if annotations != self._annotations:
                await self._driver.configure(annotations)
                self._annotations = dict(annotations)
            self.gpus = await self._driver.discover()
        except PartitionError as error:
            if str(error) != str(self.fault):
                log.warning("%s", error)
            self.fault = error
            return
        self.fault = None
        self._announce(capacity.amounts(self.gpus))

    def _announce(self, amounts: Mapping[str, capacity.Amount]) -> None:
        for resource, amount in amounts.items():
            if self._registrar.get(resource) is None and amount.total:
                self._registrar.add(self._make(resource))
        for plugin in self._registrar.plugins():
            plugin.announce(self._devices(plugin.resource, amounts.get(plugin.resource, capacity.Amount())))

    def _devices(self, resource: str, amount: capacity.Amount) -> list[Device]:
        ids = capacity.device_ids(resource, amount.total)
        if amount.healthy == amount.total:
            return [Device(name) for name in ids]
        healthy = capacity.choose_healthy(ids, amount.healthy, self._allocations.allocated(resource))
        return [Device(name, name in healthy) for name in ids]
