"""Two schedulers that both believe to lead, each late to see what the other does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from apportion.cluster.transport import HttpRequest, Response
from tests.scheduler.cluster import ApiCluster, background, scheduling, until
from tests.scheduler.queues.test_eviction_faults import before_first, nominates
from tests.scheduler.queues.workloads import Life, clear, gpu_node, gpu_pod, pod_group, pods, queue, running

FULL = os.environ.get("APPORTION_SOAK") == "1"
ROUNDS = 10 if FULL else 1
LATE_SECONDS = 0.4
Onwards = Callable[[], Awaitable[Response]]


async def _late(seconds: float, request: HttpRequest, onwards: Onwards) -> Response:
    response = await onwards()
    if request.path.endswith("/pods") and response.stream is not None:
        response.stream = _delayed(response.stream, seconds)
    return response


async def _delayed(stream: AsyncIterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    async for chunk in stream:
        await asyncio.sleep(seconds)
        yield chunk


@asynccontextmanager
async def two_leaders(cluster: ApiCluster) -> AsyncIterator[None]:
    """Under leases of their own, with different policies, and one of them late."""
    async with (
        scheduling(cluster, identity="first"),
        scheduling(
            cluster,
            cluster.wire(partial(_late, LATE_SECONDS)),
            identity="second",
            lease_name="rival",
            policy="first-fit",
        ),
    ):
        yield


@pytest.fixture
async def wiped(each_cluster: ApiCluster) -> Any:
    yield each_cluster
    await clear(each_cluster)


async def full(cluster: ApiCluster, nodes: int) -> None:
    """Nodes of two GPUs, full of pods of a queue without a quota."""
    await queue(cluster, "a", quota=0)
    await queue(cluster, "b", quota=nodes * 2)
    for number in range(nodes):
        await gpu_node(cluster, f"n{number}", 2)
        for gpu in range(2):
            await running(cluster, f"a{number}-{gpu}", "a", f"n{number}", owner=f"owner-{number}-{gpu}")


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_q06_two_leaders_evict_once_for_each_taker(wiped: ApiCluster) -> None:
    cluster = wiped
    for _ in range(ROUNDS):
        await full(cluster, nodes=4)
        life = Life(cluster)
        async with life.going_on(), two_leaders(cluster):
            for number in range(3):
                await gpu_pod(cluster, f"b{number}", "b")
                await asyncio.sleep(LATE_SECONDS / 2)
            await cluster.bound("b0", "b1", "b2")
            await asyncio.sleep(3 * LATE_SECONDS)
            places = await cluster.bound("b0", "b1", "b2")
            assert len(life.evicted) == 3, f"{life.evicted} for {places}"
            assert sorted(life.evicted.values()) == sorted(places.values())
        await clear(cluster)


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_q07_two_leaders_start_a_gang_whole(wiped: ApiCluster) -> None:
    cluster = wiped
    for _ in range(ROUNDS):
        await full(cluster, nodes=3)
        life = Life(cluster)
        async with life.going_on(), two_leaders(cluster):
            await pod_group(cluster, "g", minimum=4, queue="b")
            for number in range(4):
                await gpu_pod(cluster, f"g{number}", "b", group="g")
            places = await cluster.bound("g0", "g1", "g2", "g3")
            await asyncio.sleep(3 * LATE_SECONDS)
            assert len(life.evicted) == 4, f"{life.evicted} for {places}"
            assert sorted(life.evicted.values()) == sorted(places.values())

            async def fits() -> bool:
                """No node has more pods than GPUs."""
                found = [pod.spec.node_name for pod in await pods(cluster) if pod.spec.node_name]
                return all(found.count(node) <= 2 for node in set(found))

            await until(fits)
        await clear(cluster)


async def test_q06_of_two_plans_for_one_pod_only_the_first_is_carried_out(wiped: ApiCluster) -> None:
    """One leader has planned, and is about to write it down, when a newer victim appears and the other one acts."""
    cluster = wiped
    await queue(cluster, "a", quota=0)
    await queue(cluster, "b", quota=1)
    await gpu_node(cluster, "n1", 1)
    await running(cluster, "old", "a", "n1")
    await asyncio.sleep(1.1)  # times of creation are whole seconds
    life = Life(cluster, keep={"new"})
    acting, over = asyncio.Event(), asyncio.Event()

    async def other_leader() -> None:
        await acting.wait()
        async with scheduling(cluster, identity="second", lease_name="rival"):
            await over.wait()

    async def other_acts() -> None:
        await running(cluster, "new", "a", "n2")
        await gpu_node(cluster, "n2", 1)
        acting.set()
        await until(lambda: _is(life.evicted.keys() == {"new"}))

    wire = cluster.wire(before_first(nominates, other_acts))
    async with life.going_on(), background(other_leader()), scheduling(cluster, wire, identity="first"):
        await gpu_pod(cluster, "taker", "b")
        await until(lambda: _is("new" in life.evicted))
        await asyncio.sleep(1)
        life.keep = ()
        assert await cluster.bound("taker") == {"taker": "n2"}
        assert life.evicted.keys() == {"new"}
        over.set()


async def _is(value: object) -> bool:
    return bool(value)
