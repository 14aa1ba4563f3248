"""Requests of the same process, without sockets: controllers and kubelets use the ordinary client over this."""

from __future__ import annotations

import asyncio

from apportion.cluster import errors
from apportion.cluster.transport import HttpRequest, Response
from pocketkube.api.request_attributes import ADMIN, User
from pocketkube.api.server import ApiServer


class LocalTransport:
    """A `cluster.transport.Transport` straight into the server, as one user."""

    def __init__(self, server: ApiServer, user: User = ADMIN) -> None:
        self._server = server
        self._user = user
        self._closed = False

    async def send(self, request: HttpRequest, *, stream: bool = False, timeout: float | None = None) -> Response:  # noqa: ASYNC109
        del stream
        if self._closed:
            raise errors.Unreachable("the transport is closed")
        try:
            async with asyncio.timeout(timeout):
                return await self._server.handle(request, self._user)
        except TimeoutError as error:
            raise errors.Unreachable("the server does not answer in time") from error

    async def close(self) -> None:
        self._closed = True
