"""Raw requests at whatever API a kubeconfig names, with codes, bodies and warnings as they came."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml
from yarl import URL

JSON = dict[str, Any]
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class Answer:
    code: int
    body: Any
    warnings: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        return str(self.body.get("reason"))

    @property
    def message(self) -> str:
        return str(self.body.get("message"))

    @property
    def causes(self) -> list[tuple[str, str]]:
        return [(cause.get("reason"), cause.get("field")) for cause in self.body["details"]["causes"]]

    @property
    def meta(self) -> JSON:
        found: JSON = self.body["metadata"]
        return found


@dataclass
class Following:
    """A watch that is being read: the events so far."""

    events: list[JSON] = field(default_factory=list)
    reader: asyncio.Task[None] | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, event: JSON) -> None:
        self.events.append(event)
        self._news.set()

    @property
    def story(self) -> list[tuple[str, str]]:
        return [(each["type"], each["object"]["metadata"].get("name", "")) for each in self.events]

    async def until(self, count: int) -> list[JSON]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self.events) < count:
                self._news.clear()
                await self._news.wait()
        return self.events


class RawRequests:
    def __init__(self, kubeconfig: Path) -> None:
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        data = cluster.get("certificate-authority-data")
        self._tls = ssl.create_default_context(
            cafile=cluster.get("certificate-authority"), cadata=base64.b64decode(data).decode() if data else None
        )
        self._server = cluster["server"]
        self._headers = {"Authorization": f"Bearer {user['token']}", "User-Agent": "contract/1"}

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        media: str = "application/json",
        accept: str = "",
        encoding: str = "",
        headers: Any = None,
        **query: str,
    ) -> Answer:
        given = {"Accept": accept, "Content-Encoding": encoding, **(headers or {})}
        for _ in range(40):
            answer = await self._once(method, path, body, media, given, query)
            if answer.code != 429 or "storage is (re)initializing" not in str(answer.body):
                return answer
            await asyncio.sleep(0.25)
        return answer

    async def _once(
        self, method: str, path: str, body: Any, media: str, headers: dict[str, str], query: dict[str, str]
    ) -> Answer:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        headers = {name: value for name, value in headers.items() if value}
        if data is not None:
            headers["Content-Type"] = media
        url = URL(self._server + path).update_query(query)
        limit = aiohttp.ClientTimeout(total=60)
        async with self._session.request(
            method, url, data=data, headers=headers, ssl=self._tls, timeout=limit
        ) as response:
            text = await response.text()
            warnings = tuple(response.headers.getall("Warning", ()))
        try:
            decoded = json.loads(text)
        except ValueError:
            decoded = text
        return Answer(response.status, decoded, warnings)

    @asynccontextmanager
    async def following(self, path: str, **query: str) -> AsyncIterator[Following]:
        """Read a watch in the background; it has begun when this returns."""
        found = Following()
        url = URL(self._server + path).update_query({"watch": "true", **query})
        limit = aiohttp.ClientTimeout(total=None, sock_read=90)
        async with self._session.get(url, ssl=self._tls, timeout=limit) as response:
            assert response.status == 200, await response.text()

            async def read() -> None:
                async for line in response.content:
                    found.add(json.loads(line))

            found.reader = asyncio.create_task(read())
            try:
                yield found
            finally:
                found.reader.cancel()
                await asyncio.gather(found.reader, return_exceptions=True)

    async def watched(self, path: str, **query: str) -> list[JSON]:
        """All events of a watch that ends by itself."""
        async with self.following(path, **{"timeoutSeconds": "1", **query}) as found:
            assert found.reader is not None
            await asyncio.wait([found.reader], timeout=PATIENCE_SECONDS)
        return found.events


async def until(check: Any, what: str) -> Any:
    """The first truthy answer of an async question."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (answer := await check()):  # noqa: ASYNC110  the server's state is no event of ours
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE_SECONDS:g} s: {what}") from None
    return answer


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": data if data is not None else {"a": "1"},
    }


def pod(name: str, **spec: Any) -> JSON:
    """A pod that no scheduler takes, so that only the test changes it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}], **spec},
    }


def deployment(name: str, replicas: int = 0, **spec: Any) -> JSON:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template, **spec},
    }
