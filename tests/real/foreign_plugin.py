"""A device plugin of others on a real node: it serves `nvidia.com/gpu` and names GPUs in the environment, as NVIDIA's
own does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from apportion.apis.kubelet import deviceplugin_pb2 as wire
from apportion.node.kubelet.device_plugin import Device, Plugin
from apportion.node.kubelet.registration import Registrar
from tests.environments.node import RealNode
from tests.environments.waiting import until

GPU = "nvidia.com/gpu"
FOLDER = "/var/lib/kubelet/device-plugins"


class ForeignPlugin:
    """`given` are the GPUs that the kubelet has asked for, in this order."""

    def __init__(self, node: RealNode, uuids: Sequence[str]) -> None:
        self.given: list[str] = []
        self.node, self._uuids = node, uuids

    @contextmanager
    def serving(self) -> Iterator[None]:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        work = asyncio.run_coroutine_threadsafe(self._serve(), loop)
        try:
            until(lambda: self._offered() == len(self._uuids), f"the node offers {GPU}", within=30)
            yield
        finally:
            work.cancel()
            asyncio.run_coroutine_threadsafe(self._registrar.stop(), loop).result(timeout=10)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=10)

    async def _serve(self) -> None:
        plugin = Plugin(GPU, allocate=self._allocate)
        plugin.announce([Device(uuid) for uuid in self._uuids])
        self._registrar = Registrar(self.node.path(FOLDER))
        self._registrar.add(plugin)
        await self._registrar.run()

    def _allocate(self, _: str, ids: Sequence[str]) -> wire.ContainerAllocateResponse:
        self.given += ids
        return wire.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(ids)})

    def _offered(self) -> int:
        status = self.node.plane.api.get(f"/api/v1/nodes/{self.node.name}")["status"]
        return int(status["allocatable"].get(GPU, 0))
