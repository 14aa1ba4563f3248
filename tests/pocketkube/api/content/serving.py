"""An API server in this process, with what every cluster starts with, and ways to talk to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from apportion.cluster.transport import HttpRequest
from pocketkube.api import initial_objects
from pocketkube.api.request_attributes import ADMIN, User
from pocketkube.api.server import ApiServer

Obj = dict[str, Any]


class Server:
    """An ApiServer and the shortest way to send it something."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api

    async def send(
        self,
        method: str,
        path: str,
        body: Obj | bytes | None = None,
        *,
        user: User | None = ADMIN,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Obj]:
        """Status code and decoded answer. A PATCH is a strategic merge patch unless the headers say otherwise."""
        media = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        place, _, query = path.partition("?")
        pairs = tuple((key, value) for key, _, value in (part.partition("=") for part in query.split("&") if part))
        data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        request = HttpRequest(method, place, pairs, {"content-type": media, **(headers or {})}, data)
        response = await self.api.handle(request, user)
        self.warnings = response.headers.get("warning", "")
        return response.status, msgspec.json.decode(response.body or b"{}")

    async def create(self, path: str, body: Obj, **options: Any) -> Obj:
        code, answer = await self.send("POST", path, body, **options)
        assert code == 201, answer
        return answer

    async def refused(self, path: str, body: Obj, **options: Any) -> str:
        """The message of a creation that fails."""
        code, answer = await self.send("POST", path, body, **options)
        assert code >= 400, answer
        return str(answer["message"])


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    api = ApiServer()
    await initial_objects.prepare(api)
    server = Server(api)
    await server.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    try:
        yield server
    finally:
        await api.close()
