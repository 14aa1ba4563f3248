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


async def test_q06_the_next_leader_keeps_the_place(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1, mig=0, resources=GPU)
    async with scheduling(cluster):
        await cluster.pod("low", limits=GPU)
        await cluster.bound("low")
        await cluster.pod("high", limits=GPU, priority=75)
        await terminating(cluster, "low")
        assert "evicted for it are terminating" in await cluster.waits("high")
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
