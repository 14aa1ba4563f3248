"""The registration service on `kubelet.sock`, where device plugins announce themselves."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from stat import S_ISSOCK

import grpc

from apportion.apis.kubelet import deviceplugin_pb2 as pb
from apportion.apis.kubelet import deviceplugin_pb2_grpc as rpc
from apportion.embedded.kubelet.devices.plugin import PluginError

SOCKET = "kubelet.sock"
VERSIONS = ("v1beta1",)
_EXTENDED = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

Connect = Callable[[str, Path], Awaitable[None]]


class RegistrationServer(rpc.RegistrationServicer):
    """Serves `kubelet.sock`; `connect(resource, socket)` dials back before Register is answered."""

    def __init__(self, folder: Path, connect: Connect) -> None:
        self._folder = folder
        self._connect = connect
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """As a real kubelet does, every socket in the folder is removed first: plugins notice and come again."""
        clear_sockets(self._folder)
        self._server = grpc.aio.server()
        rpc.add_RegistrationServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._server.add_insecure_port(f"unix:{self._folder / SOCKET}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=0)
            self._server = None
            (self._folder / SOCKET).unlink(missing_ok=True)

    async def Register(  # noqa: N802
        self, request: pb.RegisterRequest, context: grpc.aio.ServicerContext[pb.RegisterRequest, pb.Empty]
    ) -> pb.Empty:
        if request.version not in VERSIONS:
            text = f'the requested API version "{request.version}" is not among the supported ones: {list(VERSIONS)}'
            await context.abort(grpc.StatusCode.UNKNOWN, text)
        if not is_extended_resource(request.resource_name):
            text = f'the ResourceName "{request.resource_name}" is invalid'
            await context.abort(grpc.StatusCode.UNKNOWN, text)
        try:
            await self._connect(request.resource_name, self._folder / request.endpoint)
        except PluginError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return pb.Empty()


def is_extended_resource(name: str) -> bool:
    """Whether a name is one that a plugin may serve: qualified, and not of Kubernetes itself."""
    domain = name.partition("/")[0]
    return bool(_EXTENDED.fullmatch(name)) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def clear_sockets(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for entry in folder.iterdir():
        if S_ISSOCK(entry.lstat().st_mode):
            entry.unlink()
