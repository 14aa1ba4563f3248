"""Evictions that do not go as planned: a budget that changed meanwhile, a victim that does not end, a lost answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from apportion.apis import kinds, names
from apportion.cluster import errors
from apportion.cluster.transport import HttpRequest, Response
from apportion.scheduler import leader, reservations
from apportion.view import kept_places
from tests.scheduler.cluster import ApiCluster, scheduling, until
from tests.scheduler.queues.workloads import NAMESPACE, Life, clear, gpu_node, gpu_pod, pods, queue, running

Onwards = Callable[[], Awaitable[Response]]


async def two_nodes(cluster: ApiCluster, *, gpus: int) -> None:
    """Full of pods of queue `a`, which has no quota; those of n2 are newer."""
    await queue(cluster, "a", quota=0)
    await queue(cluster, "b", quota=gpus)
    for node in ("n1", "n2"):
        await gpu_node(cluster, node, gpus)
        for number in range(gpus):
            await running(cluster, f"{node}-{number}", "a", node, labels={"pod": f"{node}-{number}"})
        await asyncio.sleep(1.1)  # times of creation are whole seconds


async def protect(cluster: ApiCluster, pod: str) -> None:
    """A budget that allows no eviction of this pod, as its controller would leave it."""
    body = {
        "metadata": {"name": f"keep-{pod}", "namespace": NAMESPACE},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"pod": pod}}},
    }
    await cluster.client.create(kinds.POD_DISRUPTION_BUDGETS, body)
    status = {"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 1, "currentHealthy": 1}
    status["expectedPods"] = 1
    await cluster.client.patch(
        kinds.POD_DISRUPTION_BUDGETS,
        f"keep-{pod}",
        {"status": status},
        namespace=NAMESPACE,
        subresource="status",
    )


def before_first(wanted: Callable[[HttpRequest], bool], act: Callable[[], Awaitable[None]]) -> Any:
    """A fault: `act` happens just before the first such request reaches the server."""
    done = asyncio.Event()

    async def fault(request: HttpRequest, onwards: Onwards) -> Response:
        if wanted(request) and not done.is_set():
            done.set()
            await act()
        return await onwards()

    return fault


def nominates(request: HttpRequest) -> bool:
    return request.method == "PATCH" and b"nominatedNodeName" in (request.body or b"")


def evicts(request: HttpRequest) -> bool:
    return request.path.endswith("/eviction")


async def told_evicted(cluster: ApiCluster) -> set[str]:
    """Pods with an event that says so."""
    listing = await cluster.client.list(kinds.EVENTS, namespace=NAMESPACE)
    return {event["involvedObject"]["name"] for event in listing.items if event["reason"] == "Evicted"}


@pytest.fixture
async def wiped(each_cluster: ApiCluster) -> Any:
    yield each_cluster
    await clear(each_cluster)


@pytest.mark.parametrize("when", [nominates, evicts], ids=["before the evictions", "with the first eviction"])
async def test_q07_a_budget_that_appears_after_the_plan_makes_another_plan(
    wiped: ApiCluster, when: Callable[[HttpRequest], bool]
) -> None:
    cluster = wiped
    await two_nodes(cluster, gpus=1)
    life = Life(cluster)
    wire = cluster.wire(before_first(when, lambda: protect(cluster, "n2-0")))
    async with life.going_on(), scheduling(cluster, wire):
        await gpu_pod(cluster, "taker", "b")
        assert await cluster.bound("taker") == {"taker": "n1"}
        assert set(life.evicted) == {"n1-0"}

        async def told() -> bool:
            return await told_evicted(cluster) == {"n1-0"}

        await until(told)


async def test_q07_of_two_victims_none_is_evicted_if_a_budget_now_protects_the_other(wiped: ApiCluster) -> None:
    cluster = wiped
    await two_nodes(cluster, gpus=2)
    life = Life(cluster)
    wire = cluster.wire(before_first(nominates, lambda: protect(cluster, "n2-1")))
    async with life.going_on(), scheduling(cluster, wire):
        await gpu_pod(cluster, "taker", "b", gpus=2)
        assert await cluster.bound("taker") == {"taker": "n1"}
        assert set(life.evicted) == {"n1-0", "n1-1"}


async def test_q07_without_another_way_nobody_is_evicted_until_the_budget_is_gone(wiped: ApiCluster) -> None:
    cluster = wiped
    await two_nodes(cluster, gpus=2)
    await protect(cluster, "n1-0")
    life = Life(cluster)
    wire = cluster.wire(before_first(nominates, lambda: protect(cluster, "n2-1")))
    async with life.going_on(), scheduling(cluster, wire):
        await gpu_pod(cluster, "taker", "b", gpus=2)

        async def explained() -> bool:
            pod = await cluster.get("taker")
            return "terminating" not in await cluster.waits("taker") and not pod.status.nominated_node_name

        await until(explained)
        assert not life.evicted
        assert not await told_evicted(cluster)
        await cluster.client.delete(kinds.POD_DISRUPTION_BUDGETS, "keep-n2-1", namespace=NAMESPACE)
        assert await cluster.bound("taker") == {"taker": "n2"}
        assert set(life.evicted) == {"n2-0", "n2-1"}


async def test_q06_a_victim_that_does_not_end_costs_nobody_else_a_place(
    wiped: ApiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for, however long: assumptions are checked with the server meanwhile."""
    cluster = wiped
    monkeypatch.setattr(leader, "UNCONFIRMED_SECONDS", 0.3)
    monkeypatch.setattr(leader, "SWEEP_SECONDS", 0.1)
    await two_nodes(cluster, gpus=1)
    life = Life(cluster, keep={"n2-0"})
    evictions: list[str] = []

    async def counting(request: HttpRequest, onwards: Onwards) -> Response:
        if evicts(request):
            evictions.append(request.path.split("/")[-2])
        return await onwards()

    async with life.going_on(), scheduling(cluster, cluster.wire(counting)):
        await gpu_pod(cluster, "taker", "b")
        assert "terminating" in await cluster.waits("taker")
        for number in range(4):  # changes that wake everybody
            await gpu_node(cluster, f"late-{number}", 0)
            await asyncio.sleep(0.4)
        assert evictions == ["n2-0"]
        assert (await cluster.get("taker")).status.nominated_node_name == "n2"
        life.keep = ()
        assert await cluster.bound("taker") == {"taker": "n2"}
        assert set(life.evicted) == {"n2-0"}


async def test_q06_who_waits_for_a_victim_takes_a_place_that_is_free_earlier(wiped: ApiCluster) -> None:
    cluster = wiped
    await two_nodes(cluster, gpus=1)
    life = Life(cluster, keep={"n2-0"})
    async with life.going_on(), scheduling(cluster):
        await gpu_pod(cluster, "taker", "b")
        assert "terminating" in await cluster.waits("taker")
        await cluster.delete("n1-0")
        assert await cluster.bound("taker") == {"taker": "n1"}
        await gpu_pod(cluster, "next", "a")
        life.keep = ()
        assert await cluster.bound("next") == {"next": "n2"}


async def test_q06_an_eviction_whose_answer_is_lost_is_not_planned_for_again(wiped: ApiCluster) -> None:
    cluster = wiped
    await two_nodes(cluster, gpus=2)
    lost: list[str] = []

    async def losing(request: HttpRequest, onwards: Onwards) -> Response:
        response = await onwards()
        if evicts(request) and not lost:
            lost.append(request.path)
            raise errors.Unreachable("the answer is lost")
        return response

    life = Life(cluster)
    async with life.going_on(), scheduling(cluster, cluster.wire(losing)):
        await gpu_pod(cluster, "taker", "b", gpus=2)
        assert await cluster.bound("taker") == {"taker": "n2"}
        assert set(life.evicted) == {"n2-0", "n2-1"}


async def test_q06_the_place_of_a_successor_that_does_not_come_is_free_again(
    cluster: ApiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_places, "SUCCESSOR_SECONDS", 2)
    await queue(cluster, "b", quota=4)
    for number in range(2):
        await gpu_node(cluster, f"n{number}", 2)
        await running(cluster, f"m{number}", "b", f"n{number}", owner=f"owner-{number}")
    life = Life(cluster, remake=False)
    async with life.going_on(), scheduling(cluster):
        await gpu_pod(cluster, "taker", "b", gpus=2)
        await cluster.bound("taker")
        assert len(life.evicted) == 1
        await gpu_pod(cluster, "late", "b")
        await cluster.waits("late")
        await cluster.bound("late", within=10)


async def test_q06_a_quota_that_is_raised_is_taken_at_once(cluster: ApiCluster) -> None:
    await queue(cluster, "a", quota=1)
    await queue(cluster, "b", quota=0, priority=50)
    await gpu_node(cluster, "n1", 1)
    await running(cluster, "a1", "a", "n1")
    life = Life(cluster)
    async with life.going_on(), scheduling(cluster):
        await gpu_pod(cluster, "b1", "b")
        await cluster.waits("b1")
        await asyncio.sleep(0.6)
        assert not life.evicted
        for name, quota in (("a", 0), ("b", 1)):
            await cluster.client.patch(kinds.QUEUES, name, {"spec": {"resources": {"gpu": {"quota": quota}}}})
        await cluster.bound("b1", within=10)
        assert set(life.evicted) == {"a1"}


@pytest.mark.parametrize("how", ["another place", "deleted"])
async def test_q06_nobody_is_evicted_for_a_pod_that_needs_no_place_any_more(wiped: ApiCluster, how: str) -> None:
    """Between the plan and the evictions a GPU becomes free, or the pod is deleted."""
    cluster = wiped
    await two_nodes(cluster, gpus=1)

    async def settled() -> bool:
        return bool((await cluster.get("taker")).spec.node_name)

    async def meanwhile() -> None:
        if how == "deleted":
            await cluster.delete("taker")
            await asyncio.sleep(0.3)
        else:
            await cluster.delete("n1-0")
            await until(settled)

    life = Life(cluster)
    async with life.going_on(), scheduling(cluster, cluster.wire(before_first(nominates, meanwhile))):
        await gpu_pod(cluster, "taker", "b")
        await asyncio.sleep(1)
        if how == "another place":
            assert await cluster.bound("taker") == {"taker": "n1"}
        assert not life.evicted
        await gpu_pod(cluster, "next", "b", gpus=1)
        if how == "deleted":
            await cluster.bound("next")
            assert len(life.evicted) == 1


async def test_q06_a_nominated_node_whose_place_is_lost_is_taken_off_the_pod(
    wiped: ApiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the place is reserved, it stays."""
    cluster = wiped
    monkeypatch.setattr(reservations, "UNUSED_SECONDS", 1.0)
    await queue(cluster, "a", quota=0)
    await queue(cluster, "b", quota=1)
    await gpu_node(cluster, "n1", 1)
    await running(cluster, "victim", "a", "n1")

    async def nominated() -> bool:
        return (await cluster.get("taker")).status.nominated_node_name == "n1"

    async def not_nominated() -> bool:
        return not await nominated()

    async with Life(cluster, keep={"victim"}).going_on(), scheduling(cluster):
        await gpu_pod(cluster, "taker", "b")
        await until(nominated)
        await asyncio.sleep(1.5)
        assert await nominated()
        await cluster.client.delete(kinds.NODES, "n1")
        await until(not_nominated, within=10)


async def test_q05_who_is_evicted_because_of_a_limit_is_evicted_before_the_other_pod_is_bound(
    wiped: ApiCluster,
) -> None:
    """Another node has a place for it, now that the plan is made."""
    cluster = wiped
    await queue(cluster, "b", quota=0, limit=1)
    await queue(cluster, "c", quota=1)
    for node in ("n1", "n2"):
        await gpu_node(cluster, node, 1)
    await running(cluster, "low", "b", "n1")
    await running(cluster, "other", "c", "n2")
    running_at_binding: list[str] = []

    async def slowly(request: HttpRequest, onwards: Onwards) -> Response:
        if evicts(request):
            await cluster.delete("other")
            await asyncio.sleep(1)
        if request.path.endswith("/pods/high/binding"):
            bound = [pod for pod in await pods(cluster) if pod.spec.node_name and not pod.metadata.deleting]
            running_at_binding.extend(pod.metadata.name for pod in bound)
        return await onwards()

    life = Life(cluster)
    async with life.going_on(), scheduling(cluster, cluster.wire(slowly)):
        await gpu_pod(cluster, "high", "b", priority=75)
        await cluster.bound("high", within=10)
        assert not running_at_binding
        assert set(life.evicted) == {"low"}


async def test_q05_who_is_evicted_because_of_a_limit_need_not_be_on_the_node_of_the_other_pod(
    wiped: ApiCluster,
) -> None:
    cluster = wiped
    await queue(cluster, "b", quota=0, limit=1)
    for node in ("n1", "n2"):
        await gpu_node(cluster, node, 1)
    await running(cluster, "low", "b", "n1")
    life = Life(cluster)
    async with life.going_on(), scheduling(cluster):
        await gpu_pod(cluster, "high", "b", priority=75, selector={"kubernetes.io/hostname": "n2"})
        assert await cluster.bound("high", within=10) == {"high": "n2"}
        assert set(life.evicted) == {"low"}


async def test_q05_a_place_that_the_limit_does_not_allow_any_more_is_given_up(wiped: ApiCluster) -> None:
    """The limit is reduced while the place is being freed."""
    cluster = wiped
    await queue(cluster, "b", quota=1, limit=2)
    await queue(cluster, "c", quota=1)
    for node in ("n1", "n2"):
        await gpu_node(cluster, node, 1)
    await running(cluster, "low", "b", "n1")
    await running(cluster, "firm", "b", "n2", priority=100)
    life = Life(cluster, keep=("low",))
    on_n1 = {"kubernetes.io/hostname": "n1"}

    async def nominated() -> bool:
        return (await cluster.get("high")).status.nominated_node_name == "n1"

    async def stopped() -> bool:
        return "queue b would exceed its limit" in await cluster.waits("high")

    async with life.going_on(), scheduling(cluster):
        await gpu_pod(cluster, "high", "b", priority=75, selector=on_n1)
        await until(nominated)
        await cluster.client.patch(kinds.QUEUES, "b", {"spec": {"resources": {"gpu": {"limit": 1}}}})
        await until(stopped)
        await gpu_pod(cluster, "other", "c", selector=on_n1)
        life.keep = ()
        assert await cluster.bound("other", within=10) == {"other": "n1"}
        assert not (await cluster.get("high")).spec.node_name


async def test_q06_the_place_of_a_pod_that_is_deleted_while_it_is_bound_elsewhere_is_free_again(
    wiped: ApiCluster,
) -> None:
    """Its statement is undone when the pod is gone already."""
    cluster = wiped
    await two_nodes(cluster, gpus=1)
    cut = asyncio.Event()

    async def deleting(request: HttpRequest, onwards: Onwards) -> Response:
        if not request.path.endswith("/pods/taker/binding"):
            return await onwards()
        await cluster.delete("taker")
        await asyncio.sleep(0.5)  # the scheduler sees it
        cut.set()
        raise errors.Unreachable("no answer")

    life = Life(cluster, keep={"n2-0"})
    async with life.going_on(), scheduling(cluster, cluster.wire(deleting)):
        await gpu_pod(cluster, "taker", "b")
        assert "terminating" in await cluster.waits("taker")
        await cluster.delete("n1-0")
        await asyncio.wait_for(cut.wait(), 20)
        life.keep = ()
        for name in ("one", "two"):
            await gpu_pod(cluster, name, "a")
        await cluster.bound("one", "two", within=15)


async def test_q05_what_pods_use_that_are_to_be_evicted_is_not_given_to_others_before(wiped: ApiCluster) -> None:
    """They are not evicted after all: who they were to be evicted for has another place."""
    cluster = wiped
    await queue(cluster, "a", quota=0, limit=1)
    await queue(cluster, "b", quota=1)
    await queue(cluster, "c", quota=0)
    for node in ("n1", "n2", "n3"):
        await gpu_node(cluster, node, 1)
    await running(cluster, "a1", "a", "n1")
    for node in ("n2", "n3"):
        await running(cluster, f"{node}-0", "c", node, labels={names.PREEMPTIBILITY_LABEL: "non-preemptible"})

    async def elsewhere() -> None:
        """Two GPUs are free before anybody is evicted: one for `taker`, one for which there is no use."""
        await cluster.delete("n2-0")
        await cluster.delete("n3-0")
        await gpu_pod(cluster, "a2", "a")
        await asyncio.sleep(1)

    life = Life(cluster)
    async with life.going_on(), scheduling(cluster, cluster.wire(before_first(nominates, elsewhere))):
        await gpu_pod(cluster, "taker", "b")
        await cluster.bound("taker")
        assert "limit" in await cluster.waits("a2")
        await asyncio.sleep(1)
        assert "limit" in await cluster.waits("a2")
        assert not life.evicted
