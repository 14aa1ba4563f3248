"""gRPC services on a socket of the kubelet's."""

from __future__ import annotations

from pathlib import Path
from stat import S_ISSOCK

import grpc

SOCKET = "kubelet.sock"


class SocketServer:
    """`kubelet.sock` in a folder. As a real kubelet does, every socket there is removed first: plugins notice."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        self._clear()
        self._server = grpc.aio.server()
        self._serve(self._server)
        self._server.add_insecure_port(f"unix:{self._folder / SOCKET}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=0)
            self._server = None
            (self._folder / SOCKET).unlink(missing_ok=True)

    def _serve(self, server: grpc.aio.Server) -> None:
        """Put the service on the server."""
        raise NotImplementedError

    def _clear(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for entry in self._folder.iterdir():
            if S_ISSOCK(entry.lstat().st_mode):
                entry.unlink()
