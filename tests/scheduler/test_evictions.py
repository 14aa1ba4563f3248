"""Room for those that have a right to it: pods are evicted through the API, and their place is kept."""

from __future__ import annotations

from tests.scheduler.cluster import ApiCluster, scheduling, until

GPU = {"nvidia.com/gpu": "1"}


async def terminating(cluster: ApiCluster, name: str) -> None:
    async def deleting() -> bool:
        return (await cluster.get(name)).metadata.deleting

    await until(deleting)


async def test_q06_a_pod_of_higher_priority_preempts_within_its_queue(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1, mig=0, resources=GPU)
    async with scheduling(cluster):
        await cluster.pod("low", limits=GPU)
        await cluster.bound("low")
        await cluster.pod("high", limits=GPU, priority=75)
        await terminating(cluster, "low")

        async def nominated() -> bool:
            return (await cluster.get("high")).status.nominated_node_name == "n1"

        await until(nominated)
        await cluster.pod("late", limits=GPU, priority=60)
        await cluster.waits("late")
        await cluster.delete("low")
        assert await cluster.bound("high") == {"high": "n1"}
        assert not (await cluster.get("late")).spec.node_name
