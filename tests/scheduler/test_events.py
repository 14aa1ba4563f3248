"""Events about bound pods: they stand back while bindings are written, for a while, and none is lost.

Reports about waiting pods: the first at once, repeated ones one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from apportion.apis import kinds
from apportion.apis.request import Request
from apportion.cluster import clock, transport
from apportion.cluster.client import Client
from apportion.cluster.events import Recorder
from apportion.cluster.transport import Response
from apportion.core.groups import Group
from apportion.core.operations import Bind
from apportion.core.statement import Statement
from apportion.scheduler import events
from apportion.scheduler.events import Reporter
from tests.scheduler.cluster import ApiCluster, background, until


@dataclass
class World:
    """What a reporter asks: the time, and whether bindings are being written."""

    now: float = 0.0
    busy: bool = False


@asynccontextmanager
async def reporting(cluster: ApiCluster, world: World) -> AsyncIterator[tuple[Reporter, Recorder]]:
    recorder = Recorder(cluster.client, "das-scheduler")
    made = Reporter(cluster.client, recorder, said=lambda _uid: "", now=lambda: world.now, busy=lambda: world.busy)
    async with background(recorder.run()), background(made.run()):
        yield made, recorder


def bound(number: int) -> tuple[Statement, set[str]]:
    request = Request(uid=f"uid-{number}", namespace="default", name=f"p{number:05}")
    return Statement(Group.of(request), (Bind(request, "n1"),)), {request.uid}


async def written(cluster: ApiCluster) -> int:
    listing = await cluster.client.list(kinds.EVENTS, namespace="default", fields="reason=Scheduled")
    return len(listing.items)


async def test_events_stand_back_while_bindings_are_written(cluster: ApiCluster) -> None:
    world = World(busy=True)
    async with reporting(cluster, world) as (made, _):
        for number in range(3):
            made.placed(*bound(number))
        await asyncio.sleep(3 * events.LOOK_SECONDS)
        assert await written(cluster) == 0

        world.busy = False
        await until(lambda: _count(cluster, 3))

        world.busy = True
        made.placed(*bound(3))
        await asyncio.sleep(3 * events.LOOK_SECONDS)
        assert await written(cluster) == 3
        world.now += events.STAND_BACK_SECONDS + 1
        await until(lambda: _count(cluster, 4))


async def test_no_event_is_lost_however_many_come_at_once(cluster: ApiCluster) -> None:
    async with reporting(cluster, World()) as (made, recorder):
        for number in range(1500):
            made.placed(*bound(number))
        await until(lambda: _count(cluster, 1500), within=120)
    assert recorder.dropped == 0


async def test_what_is_still_to_be_told_at_the_end_is_told(cluster: ApiCluster) -> None:
    async with reporting(cluster, World(busy=True)) as (made, _):
        await asyncio.sleep(0.05)
        made.placed(*bound(0))
        await asyncio.sleep(0.05)
    assert await written(cluster) == 1


async def test_a_first_report_does_not_wait_for_repeated_ones(cluster: ApiCluster) -> None:
    world = World()
    known = [await pending(cluster, f"known-{number:02}") for number in range(20)]
    async with reporting(cluster, world) as (made, _):
        for request in known:
            made.waits(request, "first")
        await until(lambda: _all_say(cluster, known, "first"))

        world.now += events.BETWEEN_REPORTS_SECONDS
        for request in known:
            made.waits(request, "second")
        new = await pending(cluster, "new")
        made.waits(new, "first")
        await until(lambda: _all_say(cluster, known, "second"))
        await until(lambda: _all_say(cluster, [new], "first"))
    told = [int((await cluster.get(request.name)).metadata.resource_version) for request in (new, *known)]
    assert sum(version < told[0] for version in told) < len(known) // 2


async def pending(cluster: ApiCluster, name: str) -> Request:
    return Request(uid=await cluster.pod(name, slices={"1g.5gb": 1}), namespace="default", name=name)


async def _all_say(cluster: ApiCluster, requests: list[Request], text: str) -> bool:
    pods = [await cluster.get(request.name) for request in requests]
    return all(text in [condition.message for condition in pod.status.conditions] for pod in pods)


async def test_a_reason_that_is_taken_back_while_it_is_written_is_not_the_last_word(
    cluster: ApiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "BETWEEN_REPORTS_SECONDS", 0.1)
    request = Request(uid=await cluster.pod("p"), namespace="default", name="p")
    begun, landed = asyncio.Event(), asyncio.Event()

    async def slow(sent: transport.Request, onwards: Callable[[], Awaitable[Response]]) -> Response:
        if sent.method != "PATCH" or b"too few" not in (sent.body or b""):
            return await onwards()
        begun.set()
        await asyncio.sleep(0.2)
        response = await onwards()
        landed.set()
        return response

    async def says_none() -> bool:
        return await cluster.waits("p") == "none"

    async with Client(cluster.wire(slow)) as client:
        made = Reporter(client, Recorder(cluster.client, "s"), said=lambda _uid: "", now=clock.elapsed)
        async with background(made.run()):
            made.waits(request, "none")
            await until(says_none)
            made.waits(request, "too few")
            await begun.wait()
            made.waits(request, "none")
            await landed.wait()
            await until(says_none)


async def _count(cluster: ApiCluster, wanted: int) -> bool:
    return await written(cluster) >= wanted
