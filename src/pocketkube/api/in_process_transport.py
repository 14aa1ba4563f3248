"""Requests of the same process, without sockets: controllers and kubelets use the ordinary client over this."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from apportion.cluster import errors
from apportion.cluster.transport import HttpRequest, Response
from pocketkube.api.access.tokens import Bound
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


class PodTransport:
    """The same as the service account of a pod, bound to the pod and its node as the token in its files is."""

    def __init__(self, server: ApiServer, pod: Mapping[str, Any]) -> None:
        self._server = server
        self._meta, self._spec = pod["metadata"], pod["spec"]

    async def send(self, request: HttpRequest, *, stream: bool = False, timeout: float | None = None) -> Response:  # noqa: ASYNC109
        return await LocalTransport(self._server, self._user()).send(request, stream=stream, timeout=timeout)

    async def close(self) -> None:
        pass

    def _user(self) -> User:
        """Found anew for every request: a token ends with its pod and its service account."""
        account = self._spec.get("serviceAccountName") or "default"
        meta = self._meta
        try:
            user = self._server.tokens.user_of_pod(meta["namespace"], account, Bound("Pod", meta["name"], meta["uid"]))
        except LookupError as error:
            raise errors.Unreachable(f"there is no token: {error} does not exist") from None
        if user is None:
            raise errors.Unreachable(f"the token of pod {meta['namespace']}/{meta['name']} is no longer valid")
        return user
