"""One registered device plugin: the kubelet's side of its gRPC connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import grpc

from apportion.apis.kubelet import deviceplugin_pb2 as pb
from apportion.apis.kubelet import deviceplugin_pb2_grpc as rpc
from pocketkube.kubelet.devices.ledger import AllocationError

CONNECT_SECONDS = 10.0
PRE_START_SECONDS = 30.0
HEALTHY = "Healthy"

# What Go calls the status codes in the text of an error
_CODES = {grpc.StatusCode.CANCELLED: "Canceled", grpc.StatusCode.OK: "OK"}


class PluginError(Exception):
    """A call to a plugin that failed, in the words of a real kubelet."""


class Plugin:
    """A connection to one plugin. `on_devices` gets every list; `on_gone` is called once when the stream ends."""

    def __init__(
        self,
        resource: str,
        socket: Path,
        *,
        on_devices: Callable[[Plugin, Mapping[str, bool]], None],
        on_gone: Callable[[Plugin], None],
    ) -> None:
        self.resource = resource
        self.socket = socket
        self.options = pb.DevicePluginOptions()
        self.stopped = False
        self._on_devices = on_devices
        self._on_gone = on_gone
        self._channel = grpc.aio.insecure_channel(
            f"unix:{socket}", options=(("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
        )
        self._stub = rpc.DevicePluginStub(self._channel)  # type: ignore[no-untyped-call]
        self._watching: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Dial the plugin and begin to follow its devices."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._channel.channel_ready()
            self.options = await self._stub.GetDevicePluginOptions(pb.Empty(), timeout=CONNECT_SECONDS)
        except TimeoutError:
            await self._channel.close(None)
            raise PluginError(f"failed to dial device plugin {self.socket}: context deadline exceeded") from None
        except grpc.aio.AioRpcError as error:
            await self._channel.close(None)
            raise PluginError(f"failed to get device plugin options: {go_text(error)}") from None
        self._watching = asyncio.create_task(self._watch(), name=f"plugin {self.resource}")

    async def allocate(self, ids: Iterable[str]) -> pb.ContainerAllocateResponse:
        self._check_alive()
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=list(ids))])
        try:
            with _closing_is_an_error():
                response = await self._stub.Allocate(request)
        except grpc.aio.AioRpcError as error:
            raise AllocationError(go_text(error)) from None
        if not response.container_responses:
            raise AllocationError("no containers return in allocation response")
        answer: pb.ContainerAllocateResponse = response.container_responses[0]
        return answer

    async def preferred(self, available: list[str], must: list[str], count: int) -> list[str]:
        """The plugin's preference; empty if it has none or does not answer."""
        if not self.options.get_preferred_allocation_available or self.stopped:
            return []
        wish = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=count
        )
        try:
            response = await self._stub.GetPreferredAllocation(
                pb.PreferredAllocationRequest(container_requests=[wish]), timeout=CONNECT_SECONDS
            )
        except grpc.aio.AioRpcError:
            return []
        answers = response.container_responses
        return list(answers[0].deviceIDs) if answers else []

    async def pre_start(self, ids: Iterable[str]) -> None:
        if not self.options.pre_start_required:
            return
        request = pb.PreStartContainerRequest(devices_ids=list(ids))
        try:
            self._check_alive()
            with _closing_is_an_error():
                await self._stub.PreStartContainer(request, timeout=PRE_START_SECONDS)
        except AllocationError as error:
            raise PluginError(f"device plugin PreStartContainer rpc failed with err: {error}") from None
        except grpc.aio.AioRpcError as error:
            raise PluginError(f"device plugin PreStartContainer rpc failed with err: {go_text(error)}") from None

    async def close(self) -> None:
        self.stopped = True
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        await self._channel.close(None)

    async def _watch(self) -> None:
        try:
            async for message in self._stub.ListAndWatch(pb.Empty()):
                self._on_devices(self, {device.ID: device.health == HEALTHY for device in message.devices})
        except grpc.aio.AioRpcError:
            pass
        self.stopped = True
        self._on_gone(self)

    def _check_alive(self) -> None:
        if self.stopped:
            raise AllocationError(f"endpoint {self.socket} has been stopped")


@contextlib.contextmanager
def _closing_is_an_error() -> Iterator[None]:
    """A connection closed under a call (its plugin registered anew) looks as if our own task were cancelled."""
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise AllocationError("rpc error: code = Canceled desc = grpc: the client connection is closing") from None


def go_text(error: grpc.aio.AioRpcError) -> str:
    """A gRPC error as a Go program prints it: people search for these lines."""
    code = error.code()
    name = _CODES.get(code) or "".join(part.capitalize() for part in code.name.split("_"))
    return f"rpc error: code = {name} desc = {error.details()}"
