"""Replicas with a delayed view of the pods: nothing is allocated twice, and no pod falls back because of deleted
pods."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial

from apportion.cluster.client import Client
from apportion.cluster.transport import HttpRequest, Response, Transport
from tests.admission.fallback.cluster import FallbackCluster, asked, fallback_cluster, with_patience
from tests.builders.pods import fallback_pod

LATE_SECONDS = 0.4
SEEN_SECONDS = 0.2
TWO, ONE = {"2g.20gb": 1}, {"1g.10gb": 1}


class Late:
    """Carries everything at once but what the watch on pods reports, which takes a while."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def send(self, request: HttpRequest, *, stream: bool = False, timeout: float | None = None) -> Response:  # noqa: ASYNC109
        response = await self._inner.send(request, stream=stream, timeout=timeout)
        if response.stream is not None and request.path.endswith("/pods"):
            response = replace(response, stream=_late(response.stream))
        return response

    async def close(self) -> None:
        await self._inner.close()


class Meanwhile:
    """Before the server answers which pods are there, something happens once, and everybody sees it."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.action: Callable[[], Awaitable[None]] | None = None

    async def send(self, request: HttpRequest, *, stream: bool = False, timeout: float | None = None) -> Response:  # noqa: ASYNC109
        action = self.action
        if action is not None and request.path.endswith("/pods") and "fieldSelector" in dict(request.query):
            self.action = None
            await action()
            await asyncio.sleep(SEEN_SECONDS)
        return await self._inner.send(request, stream=stream, timeout=timeout)

    async def close(self) -> None:
        await self._inner.close()


async def _late(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue()

    async def pump() -> None:
        async for chunk in chunks:
            await waiting.put((loop.time() + LATE_SECONDS, chunk))
        await waiting.put((loop.time(), None))

    task = asyncio.create_task(pump())
    try:
        while True:
            due, chunk = await waiting.get()
            if chunk is None:
                return
            await asyncio.sleep(max(0.0, due - loop.time()))
            yield chunk
    finally:
        task.cancel()


async def start_late(it: FallbackCluster, name: str) -> None:
    await it.start(name, with_patience(deadline=8, lifetime=30), client=Client(Late(it.account()._transport)))


async def test_f04_a_device_freed_a_moment_ago_is_used_though_the_view_is_old() -> None:
    async with fallback_cluster(replicas=0) as it:
        await start_late(it, "late")
        kept = [await it.create(fallback_pod(owner="a")) for _ in range(12)]
        assert [asked(each) for each in kept] == [TWO] * 12
        await asyncio.sleep(2 * LATE_SECONDS)  # all of them are seen
        await it.remove(kept[0])
        assert asked(await it.create(fallback_pod(owner="a"))) == TWO
        assert asked(await it.create(fallback_pod(owner="a"))) == ONE


async def test_f04_a_device_freed_while_the_server_is_asked_is_used() -> None:
    async with fallback_cluster(replicas=0) as it:
        meanwhile = Meanwhile(it.account()._transport)
        await it.start("asking", with_patience(deadline=8, lifetime=30), client=Client(meanwhile))
        kept = [await it.create(fallback_pod(owner="a")) for _ in range(12)]
        meanwhile.action = partial(it.remove, kept[0])
        assert asked(await it.create(fallback_pod(owner="a"))) == TWO
        assert asked(await it.create(fallback_pod(owner="a"))) == ONE


async def test_f04_a_pod_bound_elsewhere_while_the_server_is_asked_is_not_waited_for() -> None:
    async with fallback_cluster(replicas=0) as it:
        meanwhile = Meanwhile(it.account()._transport)
        await it.start("asking", with_patience(deadline=8, lifetime=30), client=Client(meanwhile))
        for _ in range(12):
            await it.create(fallback_pod(owner="a"))
        fallen = await it.create(fallback_pod(owner="a"))  # thought to go where the larger devices are, too
        meanwhile.action = partial(it.bind, fallen, "small")
        assert asked(await it.create(fallback_pod(owner="a"))) == ONE
        assert meanwhile.action is None


async def test_f04_an_old_view_beside_a_new_one_allocates_nothing_twice() -> None:
    async with fallback_cluster(replicas=0) as it:
        await it.start("prompt", with_patience(deadline=8, lifetime=30))
        await start_late(it, "late")
        made = [await it.create(fallback_pod(owner="a")) for _ in range(20)]  # each asks one of the two
        counted: Counter[str] = Counter()
        for each in made:
            counted.update(asked(each))
        assert counted == {"2g.20gb": 12, "1g.10gb": 8}
