"""Raw requests at a server, and its answers decoded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from apportion.cluster.transport import HttpRequest
from pocketkube.api.request_attributes import ADMIN, User
from pocketkube.api.server import ApiServer

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Answer:
    code: int
    body: Any
    headers: dict[str, str]

    @property
    def reason(self) -> str:
        return str(self.body.get("reason"))

    @property
    def message(self) -> str:
        return str(self.body.get("message"))


class DirectRequests:
    def __init__(self, server: ApiServer, user: User | None = ADMIN) -> None:
        self._server = server
        self._user = user

    async def __call__(
        self, method: str, path: str, body: Any = None, *, media: str = "application/json", **headers: str
    ) -> Answer:
        path, _, query = path.partition("?")
        pairs = tuple((name, value) for name, _, value in (part.partition("=") for part in query.split("&") if part))
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        given = {"content-type": media, **{name.replace("_", "-"): value for name, value in headers.items()}}
        response = await self._server.handle(HttpRequest(method, path, pairs, given, data), self._user)
        assert response.body is not None, "a stream where a whole answer was expected"
        text = response.body.decode()
        decoded = json.loads(text) if "json" in response.headers["content-type"] else text
        return Answer(response.status, decoded, dict(response.headers))

    async def events(self, path: str) -> list[dict[str, Any]]:
        """All events of a watch that ends by itself (timeoutSeconds)."""
        path, _, query = path.partition("?")
        pairs = tuple((name, value) for name, _, value in (part.partition("=") for part in query.split("&") if part))
        response = await self._server.handle(HttpRequest("GET", path, pairs), self._user)
        assert response.stream is not None, response.body
        text = b"".join([chunk async for chunk in response.stream])
        return [json.loads(line) for line in text.splitlines()]


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": data if data is not None else {"a": "1"},
    }


def pod(name: str, node: str = "", **metadata: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}
