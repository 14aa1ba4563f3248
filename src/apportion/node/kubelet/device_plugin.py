"""One device plugin: what a kubelet may ask about one resource, served on a unix socket.

The kubelet's `Allocate` names ids and nothing else, so it is answered at once with a name made of
them. The work is done in `PreStartContainer`, when the kubelet has written down whose ids they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import grpc

from apportion.apis.kubelet import deviceplugin_pb2 as wire
from apportion.apis.kubelet import deviceplugin_pb2_grpc as rpc
from apportion.node.kubelet.prestart_errors import PrestartError

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
SOCKET_PREFIX = "apportion-"

log = logging.getLogger(__name__)

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Allocate = Callable[[str, Sequence[str]], wire.ContainerAllocateResponse]
Prepare = Callable[[str, Sequence[str]], Awaitable[None]]


@dataclass(frozen=True)
class Device:
    id: str
    healthy: bool = True


class Plugin(rpc.DevicePluginServicer):
    """Serves one resource. Without `prepare` the kubelet does not call PreStartContainer."""

    def __init__(self, resource: str, *, allocate: Allocate, prepare: Prepare | None = None) -> None:
        self.resource = resource
        self.streams = 0
        self._allocate = allocate
        self._prepare = prepare
        self._devices: tuple[Device, ...] = ()
        self._changed = asyncio.Event()
        self._server: grpc.aio.Server | None = None
        self._socket: Path | None = None
        self._served = 0

    @property
    def options(self) -> wire.DevicePluginOptions:
        return wire.DevicePluginOptions(pre_start_required=self._prepare is not None)

    @property
    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def announce(self, devices: Sequence[Device]) -> None:
        """Replace the list that every kubelet that listens has."""
        if tuple(devices) != self._devices:
            self._devices = tuple(devices)
            self._wake()

    # The socket

    async def serve(self, folder: Path) -> str:
        """Serve on a new socket in the kubelet's folder; returns its file name.

        Each time under another name: a server that ends late would remove the file of its successor.
        """
        await self.stop()
        self._served += 1
        stem = self.resource.rpartition("/")[2]
        self._socket = folder / f"{SOCKET_PREFIX}{stem}.{self._served}.sock"
        self._socket.unlink(missing_ok=True)
        server = self._server = grpc.aio.server()
        rpc.add_DevicePluginServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        server.add_insecure_port(f"unix:{self._socket}")
        await server.start()
        return self._socket.name

    @property
    def reachable(self) -> bool:
        """False if the socket was removed, as a starting kubelet does."""
        return self._server is not None and self._socket is not None and self._socket.exists()

    async def stop(self) -> None:
        server, self._server = self._server, None
        self._wake()
        if server is not None:
            await server.stop(grace=1.0)
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)

    # What the kubelet calls; the names are the protocol's

    async def GetDevicePluginOptions(self, _: wire.Empty, _context: Context) -> wire.DevicePluginOptions:  # noqa: N802
        return self.options

    async def ListAndWatch(self, _: wire.Empty, _context: Context) -> AsyncIterator[wire.ListAndWatchResponse]:  # noqa: N802
        server = self._server
        self.streams += 1
        try:
            while self._server is server:
                changed = self._changed
                yield wire.ListAndWatchResponse(
                    devices=[wire.Device(ID=d.id, health=HEALTHY if d.healthy else UNHEALTHY) for d in self._devices]
                )
                await changed.wait()
        finally:
            self.streams -= 1

    async def GetPreferredAllocation(  # noqa: N802
        self, _: wire.PreferredAllocationRequest, _context: Context
    ) -> wire.PreferredAllocationResponse:
        return wire.PreferredAllocationResponse()

    async def Allocate(self, request: wire.AllocateRequest, _context: Context) -> wire.AllocateResponse:  # noqa: N802
        answers = [self._allocate(self.resource, list(asked.devices_ids)) for asked in request.container_requests]
        return wire.AllocateResponse(container_responses=answers)

    async def PreStartContainer(  # noqa: N802
        self, request: wire.PreStartContainerRequest, context: Context
    ) -> wire.PreStartContainerResponse:
        if self._prepare is not None:
            try:
                await self._prepare(self.resource, list(request.devices_ids))
            except PrestartError as problem:
                log.warning("%s %s: %s", self.resource, ",".join(request.devices_ids), problem)
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(problem))
        return wire.PreStartContainerResponse()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
