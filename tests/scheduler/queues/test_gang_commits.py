"""Gangs whose members cannot all be written: tried again with their places held, then given back."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from apportion.apis import kinds
from apportion.cluster import errors
from apportion.cluster.transport import HttpRequest, Response
from tests.scheduler.cluster import ApiCluster, scheduling, until
from tests.scheduler.queues.test_eviction_faults import protect
from tests.scheduler.queues.workloads import Life, clear, gpu_node, gpu_pod, pod_group, pods, queue, running

Onwards = Callable[[], Awaitable[Response]]
GANG = ("g0", "g1", "g2")


class Failing:
    """The server does not accept this pod's binding, or its claims, so many times."""

    def __init__(self, pod: str, times: int, *, suffix: str = "/binding") -> None:
        self._pod, self._suffix = pod, suffix
        self.left = times
        self.seen: Counter[str] = Counter()

    async def __call__(self, request: HttpRequest, onwards: Onwards) -> Response:
        if request.method == "POST" and request.path.endswith(self._suffix):
            name = self._name(request)
            self.seen[name] += 1
            if name == self._pod and self.left > 0:
                self.left -= 1
                raise errors.ServerError(500, "InternalError", "no leader of etcd")
        return await onwards()

    def _name(self, request: HttpRequest) -> str:
        if self._suffix == "/binding":
            return request.path.split("/")[-2]
        return str(json.loads(request.body or b"{}")["spec"]["podRef"]["name"])


@pytest.fixture
async def wiped(each_cluster: ApiCluster) -> Any:
    yield each_cluster
    await clear(each_cluster)


async def told(cluster: ApiCluster, pod: str, words: str) -> None:
    """Until it is."""

    async def says() -> bool:
        return words in await cluster.waits(pod)

    await until(says)


async def a_gang(cluster: ApiCluster, *, minimum: int, **options: Any) -> None:
    await pod_group(cluster, "g", minimum=minimum, queue="a")
    for name in GANG:
        await gpu_pod(cluster, name, "a", group="g", **options)


async def test_q07_a_member_whose_binding_fails_keeps_its_place_and_the_gang_is_completed(wiped: ApiCluster) -> None:
    cluster = wiped
    await queue(cluster, "a", quota=3)
    await gpu_node(cluster, "n1", 3)
    await a_gang(cluster, minimum=3)
    await gpu_pod(cluster, "late", "a")
    failing = Failing("g1", 2)
    life = Life(cluster)
    async with life.going_on(), scheduling(cluster, cluster.wire(failing)):
        await cluster.bound(*GANG)
        assert failing.left == 0
        assert not life.evicted
        assert not (await cluster.get("late")).spec.node_name


async def test_q07_a_member_that_cannot_be_bound_gives_the_others_back(wiped: ApiCluster) -> None:
    cluster = wiped
    await queue(cluster, "a", quota=3)
    await gpu_node(cluster, "n1", 3)
    await a_gang(cluster, minimum=3)
    await gpu_pod(cluster, "late", "a", gpus=3)
    failing = Failing("g1", 1000)
    life = Life(cluster)
    async with life.going_on(), scheduling(cluster, cluster.wire(failing)):
        assert await cluster.bound("late") == {"late": "n1"}
        assert set(life.evicted) == {"g0", "g2"}
        assert failing.seen["g1"] == 3

        async def told() -> bool:
            listing = await cluster.client.list(kinds.EVENTS, namespace="default")
            texts = [event["message"] for event in listing.items if event["reason"] == "Evicted"]
            return len(texts) == 2 and all("2 of at least 3 pods" in text for text in texts)

        await until(told)


async def test_q09_a_member_above_the_minimum_that_cannot_be_bound_leaves_the_others(wiped: ApiCluster) -> None:
    cluster = wiped
    await queue(cluster, "a", quota=3)
    await gpu_node(cluster, "n1", 3)
    await a_gang(cluster, minimum=2)
    failing = Failing("g2", 4)

    async def slowly(request: HttpRequest, onwards: Onwards) -> Response:
        """The answers about the others come after the cluster has shown them bound, and after the failure."""
        response = await failing(request, onwards)
        if request.path.endswith("/binding"):
            await asyncio.sleep(0.3)
        return response

    life = Life(cluster)
    async with life.going_on(), scheduling(cluster, cluster.wire(slowly)):
        await cluster.bound("g0", "g1")
        await cluster.bound("g2")
        assert not life.evicted


async def test_q07_claims_of_a_gang_that_has_no_place_any_more_are_released(wiped: ApiCluster) -> None:
    """The place of one member is taken while the claims of the others are written."""
    cluster = wiped
    await queue(cluster, "a", quota=3)
    await cluster.node("n1", gpus=1)
    await pod_group(cluster, "g", minimum=2, queue="a")
    for name in ("g0", "g1"):
        await cluster.pod(
            name, slices={"3g.20gb": 1}, labels={"kai.scheduler/queue": "a"}, annotations={"pod-group-name": "g"}
        )
    failing = Failing("g1", 1, suffix="/allocationclaims")
    taken = asyncio.Event()

    async def taking(request: HttpRequest, onwards: Onwards) -> Response:
        try:
            return await failing(request, onwards)
        except errors.ServerError:
            if not taken.is_set():
                taken.set()
                await cluster.client.patch(kinds.NODES, "n1", {"spec": {"unschedulable": True}})
                await asyncio.sleep(0.2)
            raise

    async with scheduling(cluster, cluster.wire(taking)):
        await taken.wait()

        async def nothing_held() -> bool:
            return not await cluster.claims()

        await until(nothing_held)
        await cluster.client.patch(kinds.NODES, "n1", {"spec": {"unschedulable": None}})
        await cluster.bound("g0", "g1")


async def test_q07_a_gang_whose_minimum_can_never_be_reached_evicts_nobody(wiped: ApiCluster) -> None:
    cluster = wiped
    await queue(cluster, "a", quota=0)
    await queue(cluster, "b", quota=8)
    await gpu_node(cluster, "n1", 2)
    life = Life(cluster)
    async with life.going_on(), scheduling(cluster):
        for name in ("a0", "a1"):
            await gpu_pod(cluster, name, "a")
        await cluster.bound("a0", "a1")
        await pod_group(cluster, "g", minimum=3, queue="b")
        for name in GANG[:2]:
            await gpu_pod(cluster, name, "b", group="g")
        assert "missing" in await cluster.waits("g0")
        await gpu_pod(cluster, "g2", "b", group="g")  # complete now, but there are only two GPUs

        async def told() -> bool:
            return "missing" not in await cluster.waits("g0")

        await until(told)
        for number in range(3):  # changes that wake everybody
            await gpu_node(cluster, f"late-{number}", 0)
            await asyncio.sleep(0.3)
        assert not life.evicted
        assert not any(pod.metadata.deleting for pod in await pods(cluster))
        assert not any(pod.status.nominated_node_name for pod in await pods(cluster))
        await gpu_node(cluster, "n2", 1)
        await cluster.bound(*GANG)
        assert set(life.evicted) == {"a0", "a1"}


async def test_q07_places_of_a_gang_that_loses_a_member_are_for_others(wiped: ApiCluster) -> None:
    cluster = wiped
    await queue(cluster, "a", quota=0)
    await queue(cluster, "b", quota=2)
    await gpu_node(cluster, "n1", 2)
    life = Life(cluster, keep={"a0", "a1"})
    async with life.going_on(), scheduling(cluster):
        for name in ("a0", "a1"):
            await gpu_pod(cluster, name, "a")
        await cluster.bound("a0", "a1")
        await pod_group(cluster, "g", minimum=2, queue="b")
        for name in GANG[:2]:
            await gpu_pod(cluster, name, "b", group="g")
        await told(cluster, "g0", "terminating")
        await cluster.delete("g1")
        await told(cluster, "g0", "missing")
        await gpu_pod(cluster, "late", "b", gpus=2)
        life.keep = ()
        assert await cluster.bound("late") == {"late": "n1"}
        assert set(life.evicted) == {"a0", "a1"}


async def test_q09_of_a_gang_that_is_given_back_budgets_protect_single_pods(cluster: ApiCluster) -> None:
    await queue(cluster, "a", quota=3)
    await gpu_node(cluster, "n1", 3)
    await pod_group(cluster, "g", minimum=3, queue="a")
    for name in ("g0", "g1"):
        await running(cluster, name, "a", "n1", group="g", labels={"pod": name})
    await gpu_pod(cluster, "g2", "a", group="g")
    await protect(cluster, "g1")
    life = Life(cluster)
    async with life.going_on(), scheduling(cluster, cluster.wire(Failing("g2", 1000))):
        await until(lambda: evicted(life, "g0"))
        await asyncio.sleep(0.5)
        assert set(life.evicted) == {"g0"}


async def evicted(life: Life, name: str) -> bool:
    return name in life.evicted
