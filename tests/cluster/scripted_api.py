"""A small Kubernetes-like API on loopback that misbehaves on demand: the other end for client tests.

It knows one thing well: objects at paths with versions, lists in pages, watches from a version. A test
pushes `faults`: each one answers (or breaks) the next request that it matches.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from apportion.cluster.client import Client
from apportion.cluster.transport import HttpTransport

JSON = dict[str, Any]
Answer = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


@dataclass
class Fault:
    """`answer` stands in for the server whenever `matches`, `times` times."""

    matches: Callable[[web.Request], bool]
    answer: Answer
    times: int = 1


@dataclass
class ScriptedApi:
    """Objects by collection path and name."""

    collections: dict[str, dict[str, JSON]] = field(default_factory=dict)
    history: list[tuple[int, str, str, JSON]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    requests: list[web.Request] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    version: int = 0
    oldest: int = 0
    url: str = ""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    # Changes by other clients

    async def put(self, collection: str, name: str, **fields: Any) -> JSON:
        objects = self.collections.setdefault(collection, {})
        self.version += 1
        kind = "MODIFIED" if name in objects else "ADDED"
        uid = objects[name]["metadata"]["uid"] if name in objects else f"uid-{self.version}"
        meta = {"name": name, "uid": uid, "resourceVersion": str(self.version)}
        if "/namespaces/" in collection:
            meta["namespace"] = collection.split("/namespaces/")[1].split("/", maxsplit=1)[0]
        objects[name] = {"metadata": meta, **fields}
        await self._record(kind, collection, objects[name])
        return objects[name]

    async def remove(self, collection: str, name: str) -> None:
        obj = self.collections[collection].pop(name)
        self.version += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        await self._record("DELETED", collection, obj)

    async def forget_history(self) -> None:
        """As after an etcd compaction: watches from before are too old."""
        self.oldest = self.version
        self.history.clear()
        async with self.changed:
            self.changed.notify_all()

    def fail(self, method: str, code: int, *, times: int = 1, watch: bool | None = None, **extra: Any) -> None:
        headers = extra.pop("headers", {})

        async def answer(_: web.Request) -> web.StreamResponse:
            return status_response(code, headers=headers, **extra)

        self.faults.append(Fault(_matcher(method, watch=watch), answer, times))

    def break_connection(self, method: str, *, times: int = 1, watch: bool | None = None) -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

        self.faults.append(Fault(_matcher(method, watch=watch), answer, times))

    async def _record(self, kind: str, collection: str, obj: JSON) -> None:
        self.history.append((self.version, kind, collection, obj))
        async with self.changed:
            self.changed.notify_all()

    # What a client sees

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append(request)
        self.bodies.append(json.loads(body) if body else None)
        for fault in self.faults:
            if fault.matches(request):
                fault.times -= 1
                if fault.times == 0:
                    self.faults.remove(fault)
                answered = await fault.answer(request)
                if answered is not None:
                    return answered
        collection, name = self._place(request.path)
        if request.method == "GET" and name is None:
            return (
                await self._watch(request, collection) if "watch" in request.query else self._list(request, collection)
            )
        return await self._single(request, collection, name, self.bodies[-1])

    def _place(self, path: str) -> tuple[str, str | None]:
        parts = path.strip("/").split("/")
        plural = (3 if parts[0] == "apis" else 2) + (2 if "namespaces" in parts else 0)
        collection = "/" + "/".join(parts[: plural + 1])
        return collection, parts[plural + 1] if len(parts) > plural + 1 else None

    def _list(self, request: web.Request, collection: str) -> web.Response:
        items = [self.collections.get(collection, {})[key] for key in sorted(self.collections.get(collection, {}))]
        start, limit = int(request.query.get("continue") or 0), int(request.query.get("limit") or 0)
        page = items[start : start + limit] if limit else items
        more = str(start + limit) if limit and start + limit < len(items) else ""
        return web.json_response({"metadata": {"resourceVersion": str(self.version), "continue": more}, "items": page})

    async def _watch(self, request: web.Request, collection: str) -> web.StreamResponse:
        seen = int(request.query.get("resourceVersion") or 0)
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            if seen < self.oldest:
                await _event(response, "ERROR", status_body(410, reason="Expired"))
                return response
            for version, kind, place, obj in list(self.history):
                if version > seen and place == collection:
                    await _event(response, kind, obj)
                    seen = version
            async with self.changed:
                if not any(version > seen and place == collection for version, _, place, _ in self.history):
                    await self.changed.wait()

    async def _single(  # noqa: PLR0911  one verb after the other
        self, request: web.Request, collection: str, name: str | None, body: Any
    ) -> web.Response:
        objects = self.collections.setdefault(collection, {})
        if request.method == "POST" and name is None:
            name = body["metadata"]["name"]
            if name in objects:
                return status_response(409, reason="AlreadyExists", message=f"{name} already exists")
            fields = {key: value for key, value in body.items() if key != "metadata"}
            return web.json_response(await self.put(collection, name, **fields), status=201)
        found = objects.get(name or "")
        if found is None or name is None:
            return status_response(404, reason="NotFound", message=f"{name} not found")
        if request.method == "PUT":
            wanted = body["metadata"].get("resourceVersion")
            if wanted and wanted != found["metadata"]["resourceVersion"]:
                return status_response(409, reason="Conflict", message="the object has been modified")
            fields = {key: value for key, value in body.items() if key != "metadata"}
            return web.json_response(await self.put(collection, name, **fields))
        if request.method == "DELETE":
            await self.remove(collection, name)
        if request.method == "PATCH":
            fields = {key: value for key, value in {**found, **body}.items() if key != "metadata"}
            return web.json_response(await self.put(collection, name, **fields))
        return web.json_response(found)


@asynccontextmanager
async def serving(api: ScriptedApi, *, tls: Any = None) -> AsyncIterator[Client]:
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    port = runner.addresses[0][1]
    api.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        async with Client(HttpTransport(api.url), timeout=5) as client:
            yield client
    finally:
        await runner.cleanup()


def status_body(code: int, **extra: Any) -> JSON:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, **extra}


def status_response(code: int, *, headers: dict[str, str] | None = None, **extra: Any) -> web.Response:
    return web.json_response(status_body(code, **extra), status=code, headers=headers or {})


def _matcher(method: str, *, watch: bool | None) -> Callable[[web.Request], bool]:
    return lambda request: request.method == method and watch in (None, "watch" in request.query)


async def _event(response: web.StreamResponse, kind: str, obj: JSON) -> None:
    await response.write(json.dumps({"type": kind, "object": obj}).encode() + b"\n")
