"""Which plugin serves which resource, and what it does before a container starts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from apportion.apis import names
from apportion.apis.kubelet import deviceplugin_pb2 as wire
from apportion.node.container import preparation
from apportion.node.container.preparation import Preparation
from apportion.node.hardware.partitioner import PartitionError
from apportion.node.kubelet.device_holders import names_existing_devices
from apportion.node.kubelet.device_plugin import Plugin
from apportion.node.kubelet.existing_devices import ExistingDevices
from apportion.node.kubelet.prestart_errors import NotMade, PrestartError
from apportion.node.metrics import Metrics


class Plugins:
    """Makes plugins. `changed` is set when a container got devices that exist: their holder is to be reported."""

    def __init__(
        self, prepared: Preparation, existing: ExistingDevices, metrics: Metrics, changed: asyncio.Event
    ) -> None:
        self._preparation = prepared
        self._existing = existing
        self._metrics = metrics
        self._changed = changed

    def make(self, resource: str) -> Plugin:
        if resource == names.GPU_MEMORY:  # a number to schedule by: the container gets nothing from it
            return Plugin(resource, allocate=lambda _resource, _ids: wire.ContainerAllocateResponse())
        if names_existing_devices(resource):
            return Plugin(resource, allocate=self._existing.allocate, prepare=self._prepare_existing)
        return Plugin(resource, allocate=preparation.allocate, prepare=self._prepare)

    async def _prepare_existing(self, resource: str, ids: Sequence[str]) -> None:
        try:
            await self._existing.prepare(resource, ids)
        except (PartitionError, OSError) as error:
            raise NotMade(str(error)) from error
        self._changed.set()

    async def _prepare(self, resource: str, ids: Sequence[str]) -> None:
        begin = time.monotonic()
        try:
            await self._preparation.prepare(resource, ids)
        except PrestartError as error:
            self._metrics.problems.labels(error.reason).inc()
            raise
        finally:
            self._metrics.prepared.observe(time.monotonic() - begin)
