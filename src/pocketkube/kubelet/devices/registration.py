"""The registration service on `kubelet.sock`, where device plugins announce themselves."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc

from apportion.apis.kubelet import deviceplugin_pb2 as pb
from apportion.apis.kubelet import deviceplugin_pb2_grpc as rpc
from pocketkube.kubelet.devices.plugin import PluginError
from pocketkube.kubelet.devices.sockets import SocketServer

VERSIONS = ("v1beta1",)
_EXTENDED = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

Connect = Callable[[str, Path], Awaitable[None]]


class RegistrationServer(SocketServer, rpc.RegistrationServicer):
    """Serves `kubelet.sock`; `connect(resource, socket)` dials back before Register is answered."""

    def __init__(self, folder: Path, connect: Connect) -> None:
        super().__init__(folder)
        self._connect = connect

    def _serve(self, server: grpc.aio.Server) -> None:
        rpc.add_RegistrationServicer_to_server(self, server)  # type: ignore[no-untyped-call]

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
