"""A device plugin for the tests: real gRPC on a real socket, and a record of every call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc

from apportion.apis.kubelet import deviceplugin_pb2 as pb
from apportion.apis.kubelet import deviceplugin_pb2_grpc as rpc


class ToyPlugin(rpc.DevicePluginServicer):
    def __init__(self, folder: Path, resource: str, ids: list[str], *, pre_start: bool = True) -> None:
        self.folder = folder
        self.resource = resource
        self.socket = folder / (resource.replace("/", "-") + ".sock")
        self.devices = dict.fromkeys(ids, True)
        self.pre_start = pre_start
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.fail_allocate = ""
        self.fail_pre_start = ""
        self._lists: list[asyncio.Queue[None]] = []
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        rpc.add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()
        await self.register()

    async def register(self, *, version: str = "v1beta1", resource: str | None = None) -> None:
        async with grpc.aio.insecure_channel(f"unix:{self.folder / 'kubelet.sock'}") as channel:
            await rpc.RegistrationStub(channel).Register(
                pb.RegisterRequest(
                    version=version,
                    endpoint=self.socket.name,
                    resource_name=resource or self.resource,
                    options=pb.DevicePluginOptions(pre_start_required=self.pre_start),
                ),
                timeout=5,
            )

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=0)
            self._server = None

    def set_health(self, name: str, *, healthy: bool) -> None:
        self.devices[name] = healthy
        for waiting in self._lists:
            waiting.put_nowait(None)

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> pb.DevicePluginOptions:  # noqa: N802
        return pb.DevicePluginOptions(pre_start_required=self.pre_start)

    async def ListAndWatch(self, request: Any, context: Any) -> Any:  # noqa: N802
        changes: asyncio.Queue[None] = asyncio.Queue()
        self._lists.append(changes)
        while True:
            yield pb.ListAndWatchResponse(
                devices=[pb.Device(ID=i, health="Healthy" if ok else "Unhealthy") for i, ok in self.devices.items()]
            )
            await changes.get()

    async def Allocate(self, request: pb.AllocateRequest, context: Any) -> pb.AllocateResponse:  # noqa: N802
        ids = tuple(request.container_requests[0].devices_ids)
        self.calls.append(("Allocate", ids))
        if self.fail_allocate:
            await context.abort(grpc.StatusCode.UNKNOWN, self.fail_allocate)
        name = f"{self.resource.replace('mig.das.com/', 'apportion.io/c')}={'-'.join(ids)}"
        answer = pb.ContainerAllocateResponse(cdi_devices=[pb.CDIDevice(name=name)], envs={"TOY": ",".join(ids)})
        return pb.AllocateResponse(container_responses=[answer])

    async def PreStartContainer(self, request: pb.PreStartContainerRequest, context: Any) -> Any:  # noqa: N802
        self.calls.append(("PreStartContainer", tuple(request.devices_ids)))
        if self.fail_pre_start:
            await context.abort(grpc.StatusCode.UNAVAILABLE, self.fail_pre_start)
        return pb.PreStartContainerResponse()

    def called(self, name: str) -> list[tuple[str, ...]]:
        return [ids for call, ids in self.calls if call == name]
