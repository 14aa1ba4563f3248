"""What the API benchmark does to a server: makes pods, patches them, lists them, watches them, waits for them.

Everything is timed from outside, over the same client and as many connections, whichever server answers. Bodies
that come back are not decoded, so that the clock runs for the server and not for this process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from apportion.apis.kinds import NODES, PODS
from apportion.apis.meta import Bare
from apportion.cluster import access, errors
from apportion.cluster.client import Client
from apportion.cluster.transport import HttpRequest

NAMESPACE = "default"
AT_ONCE = 32
WATCHERS = 20
PATIENCE_SECONDS = 280.0  # only a bound: a quiet machine needs a tenth of it
_PATH = PODS.path(namespace=NAMESPACE)


class Load:
    """One server under load. Pods are numbered; each step takes up where the one before it stopped."""

    def __init__(self, kubeconfig: Path, *, scheduler: str) -> None:
        self._kubeconfig = kubeconfig
        self._scheduler = scheduler
        self._client = Client.from_kubeconfig(kubeconfig)
        self._made = 0

    async def close(self) -> None:
        await self._client.close()

    async def warm_up(self) -> None:
        """Connections, code paths and caches: the first requests are slow everywhere."""
        await self.create(AT_ONCE)
        await self.patch(AT_ONCE)
        await self._client.raw("DELETE", _PATH, body={"gracePeriodSeconds": 0})
        self._made = 0

    async def create(self, count: int) -> float:
        began, first = time.perf_counter(), self._made
        await in_parallel(count, lambda number: self._create(f"p{first + number:06}"))
        self._made += count
        return time.perf_counter() - began

    async def patch(self, count: int) -> float:
        """Changes of one label, each of another pod."""
        began = time.perf_counter()
        body = b'{"metadata":{"labels":{"seen":"%f"}}}' % began
        await in_parallel(count, lambda number: self._patch(f"p{number % self._made:06}", body))
        return time.perf_counter() - began

    async def list(self, count: int) -> float:
        """All pods in one answer; the median of three."""
        assert count == self._made, f"{self._made} pods are there"
        took = []
        for _ in range(3):
            began = time.perf_counter()
            await self._client.raw("GET", _PATH)
            took.append(time.perf_counter() - began)
        return sorted(took)[1]

    async def fan_out(self, changes: int) -> float:
        """From the first change until each of the watchers has been told of the last."""
        now = await self._client.list(PODS, namespace=NAMESPACE, fields="metadata.name=none")
        async with asyncio.TaskGroup() as group:
            ready = [asyncio.Event() for _ in range(WATCHERS)]
            watchers = [group.create_task(self._watch(now.resource_version, changes, each)) for each in ready]
            for each in ready:
                await each.wait()
            began = time.perf_counter()
            await self.patch(changes)
            await asyncio.wait(watchers)
        return time.perf_counter() - began

    async def run(self, count: int) -> float:
        """From the first create until all pods run."""
        ready = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            running = {"fieldSelector": "status.phase=Running"}
            watcher = group.create_task(self._watch("0", count, ready, sign=b'{"type":"ADDED"', **running))
            await ready.wait()
            began = time.perf_counter()
            await self.create(count)
            await asyncio.wait([watcher])
        return time.perf_counter() - began

    async def _create(self, name: str) -> None:
        container = {
            "name": "main",
            "image": "busybox",
            "command": ["sleep", "infinity"],
            "env": [{"name": "A", "value": "1"}],
            "resources": {"requests": {"cpu": "10m", "memory": "8Mi"}, "limits": {"memory": "64Mi"}},
        }
        spec = {"schedulerName": self._scheduler, "containers": [container]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "load"}}, "spec": spec}
        await self._client.raw("POST", _PATH, body=body)

    async def _patch(self, name: str, body: bytes) -> None:
        media = "application/merge-patch+json"
        await self._client.raw("PATCH", f"{_PATH}/{name}", body=body, media=media)

    async def _watch(
        self, version: str, events: int, ready: asyncio.Event, *, sign: bytes = b"\n", **query: str
    ) -> None:
        """Reads a watch on a connection of its own until that many events have come; `sign` is in each once."""
        transport = access.from_kubeconfig(self._kubeconfig)
        pairs = {"watch": "true", "resourceVersion": version, **query}
        request = HttpRequest("GET", _PATH, tuple(pairs.items()), {"accept": "application/json"}, None)
        try:
            response = await transport.send(request, stream=True, timeout=PATIENCE_SECONDS)
            ready.set()
            assert response.stream is not None
            async with asyncio.timeout(PATIENCE_SECONDS):
                await _read(response.stream, sign, events)
        finally:
            await transport.close()


async def in_parallel(count: int, step: Callable[[int], Awaitable[None]]) -> None:
    """Steps 0 to count - 1 by a fixed number of workers: tasks by the thousand would be measured too."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await step(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


async def _read(stream: AsyncIterator[bytes], sign: bytes, count: int) -> None:
    seen, rest = 0, b""
    async for chunk in stream:
        data = rest + chunk
        seen += data.count(sign)
        if seen >= count:
            return
        # A sign that was cut in two by the network; shorter than one, so that none counts twice.
        rest = data[-(len(sign) - 1) :] if len(sign) > 1 else b""
    raise errors.Unreachable(f"a watch ended after {seen} of {count} events")


async def until_ready(kubeconfig: Path, *, nodes: int = 0) -> None:
    """Pods can be made once their service account is there, and run once nodes are."""
    async with Client.from_kubeconfig(kubeconfig) as client, asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with suppress(errors.NotFound):
                await client.raw("GET", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default")
                found = await client.list(NODES, into=Bare)
                if len(found.items) == nodes:
                    return
            await asyncio.sleep(0.1)
