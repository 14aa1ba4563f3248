"""Room for those that have a right to it: pods are evicted through the API, and their place is kept."""

from __future__ import annotations

import asyncio
from typing import Any

from apportion.apis import kinds
from tests.scheduler.cluster import ApiCluster, scheduling, until

GPU = {"nvidia.com/gpu": "1"}


def queue_spec(quota: float) -> dict[str, Any]:
    return {"resources": {"gpu": {"quota": quota}}}


async def terminating(cluster: ApiCluster, name: str) -> None:
    async def deleting() -> bool:
        return (await cluster.get(name)).metadata.deleting

    await until(deleting)


async def high_evicts_low(cluster: ApiCluster) -> None:
    await cluster.pod("low", limits=GPU)
    await cluster.bound("low")
    await cluster.pod("high", limits=GPU, priority=75)
    await terminating(cluster, "low")


async def test_q06_a_pod_of_higher_priority_preempts_within_its_queue(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1, mig=0, resources=GPU)
    async with scheduling(cluster):
        await high_evicts_low(cluster)

        async def nominated() -> bool:
            return (await cluster.get("high")).status.nominated_node_name == "n1"

        await until(nominated)
        await cluster.pod("late", limits=GPU, priority=60)
        await cluster.waits("late")
        await cluster.delete("low")
        assert await cluster.bound("high") == {"high": "n1"}
        assert not (await cluster.get("late")).spec.node_name


async def test_q06_the_next_leader_keeps_the_place(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1, mig=0, resources=GPU)
    async with scheduling(cluster):
        await high_evicts_low(cluster)
        assert "1 pod that was evicted for it is terminating" in await cluster.waits("high")
    await cluster.end_lease()
    await cluster.pod("late", limits=GPU, priority=75)
    async with scheduling(cluster):
        await cluster.waits("late")
        await cluster.delete("low")
        assert await cluster.bound("high") == {"high": "n1"}
        assert not (await cluster.get("late")).spec.node_name


async def test_q06_slices_are_taken_where_the_pod_fits(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1)
    async with scheduling(cluster):
        for number in range(7):
            await cluster.pod(f"low-{number}", slices={"1g.5gb": 1})
        await cluster.bound(*(f"low-{number}" for number in range(7)))
        await cluster.pod("high", slices={"3g.20gb": 1}, priority=75)

        async def leaving() -> list[str] | None:
            names = [f"low-{number}" for number in range(7)]
            found = [name for name in names if (await cluster.get(name)).metadata.deleting]
            return found if len(found) >= 3 else None

        gone = await until(leaving)
        assert len(gone) <= 4
        for name in gone:
            await cluster.delete(name)
        await cluster.bound("high")
        await cluster.no_overlap()


async def test_q06_a_queue_below_its_share_reclaims_the_newest_pod(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=2, mig=0, resources={"nvidia.com/gpu": "2"})
    for name in ("a", "b"):
        await cluster.client.create(kinds.QUEUES, {"metadata": {"name": name}, "spec": queue_spec(quota=1)})
    async with scheduling(cluster):
        for name in ("a1", "a2"):
            await cluster.pod(name, limits=GPU, labels={"kai.scheduler/queue": "a"})
            await cluster.bound(name)
            await asyncio.sleep(1.1)  # times of creation are whole seconds
        await cluster.pod("b1", limits=GPU, labels={"kai.scheduler/queue": "b"})
        await terminating(cluster, "a2")
        assert not (await cluster.get("a1")).metadata.deleting
        await cluster.delete("a2")
        assert await cluster.bound("b1") == {"b1": "n1"}

        async def told() -> bool:
            queue = await cluster.client.get(kinds.QUEUES, "b")
            return queue.get("status", {}).get("allocated", {}).get("nvidia.com/gpu") == "1"

        await until(told)


async def test_q02_a_pod_of_an_unknown_queue_waits(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1, mig=0, resources=GPU)
    await cluster.client.create(kinds.QUEUES, {"metadata": {"name": "a"}, "spec": queue_spec(quota=1)})
    async with scheduling(cluster):
        await cluster.pod("lost", limits=GPU, labels={"kai.scheduler/queue": "nowhere"})
        assert "queue nowhere does not exist" in await cluster.waits("lost")
        await cluster.client.create(kinds.QUEUES, {"metadata": {"name": "nowhere"}, "spec": queue_spec(quota=1)})
        await cluster.bound("lost")


async def test_q07_a_group_is_placed_whole_or_not_at_all(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=2, mig=0, resources={"nvidia.com/gpu": "2"})
    group = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 3}}
    await cluster.client.create(kinds.POD_GROUPS, group)
    async with scheduling(cluster):
        for number in range(2):
            await cluster.pod(f"g-{number}", limits=GPU, annotations={"pod-group-name": "g"})
        assert "the group needs 3 pods to start, and 2 exist: 1 pod is missing" in await cluster.waits("g-0")
        await cluster.pod("g-2", limits=GPU, annotations={"pod-group-name": "g"})
        await cluster.waits("g-2")
        await cluster.node("n2", gpus=1, mig=0, resources=GPU)
        placed = await cluster.bound("g-0", "g-1", "g-2")
        assert sorted(placed.values()) == ["n1", "n1", "n2"]


async def test_q07_a_pod_under_a_budget_that_allows_nothing_is_not_evicted(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=2, mig=0, resources={"nvidia.com/gpu": "2"})
    budget = {
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    await cluster.client.create(kinds.POD_DISRUPTION_BUDGETS, budget)
    async with scheduling(cluster):
        await cluster.pod("free", limits=GPU)
        await cluster.bound("free")
        await asyncio.sleep(1.1)  # so that the protected pod is the newer one
        await cluster.pod("kept", limits=GPU, labels={"app": "kept"})
        await cluster.bound("kept")
        await cluster.set_phase("kept", "Running")
        await cluster.pod("high", limits=GPU, priority=75)
        await terminating(cluster, "free")
        assert not (await cluster.get("kept")).metadata.deleting
