"""Groups that run without their minimum: told at once, evicted whole after a while, with the reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from apportion.apis import kinds, names
from apportion.cluster import clock, errors
from apportion.cluster.transport import HttpRequest, Response
from tests.builders import groups
from tests.scheduler.cluster import ApiCluster, scheduling, until
from tests.scheduler.cut_connections import Onwards, Proxy
from tests.scheduler.groups.gangs import Gangs, Json

GROUP = {names.POD_GROUP: "g"}


async def running_gang(gangs: Gangs, size: int = 3, minimum: int | None = None) -> None:
    """A PodGroup `g` whose pods g-0, g-1, ... run on one node."""
    await gangs.cluster.node("n1", gpus=size, mig=0, resources={names.NVIDIA_GPU: str(size)})
    await gangs.client.create(kinds.POD_GROUPS, groups.pod_group("g", minimum or size))
    for number in range(size):
        await gangs.pod(f"g-{number}", annotations=GROUP)
    await gangs.cluster.bound(*(f"g-{number}" for number in range(size)))
    for number in range(size):
        await gangs.cluster.set_phase(f"g-{number}", "Running")


async def below(gangs: Gangs) -> Json:
    """The condition of the group, once it says that the minimum is not there."""

    async def found() -> Json | None:
        status = (await gangs.client.get(kinds.POD_GROUPS, "g", namespace="default")).get("status", {})
        return next(
            (
                each
                for each in status.get("conditions", ())
                if (each["type"], each["status"]) == ("BelowMinimum", "True")
            ),
            None,
        )

    return await until(found)


async def leaving(gangs: Gangs, *pods: str) -> None:
    async def all_of_them() -> bool:
        return all([(await gangs.cluster.get(pod)).metadata.deleting for pod in pods])

    await until(all_of_them)


async def test_q09_a_group_below_its_minimum_is_evicted_whole_with_the_reason(gangs: Gangs) -> None:
    async with scheduling(gangs.cluster, stale_group_seconds=3):
        await running_gang(gangs)
        await gangs.cluster.delete("g-2")
        condition = await below(gangs)
        assert condition["message"] == "2 of at least 3 pods run"
        await gangs.event("PodGroup", "g", "NotReady", "2 of at least 3 pods run", "evicted if this lasts for 3 s")
        await leaving(gangs, "g-0", "g-1")
        await gangs.event("Pod", "g-0", "Evicted", "below its minimum for 3 s: 2 of at least 3 pods run")
        await gangs.event("PodGroup", "g", "StaleJob", "2 of 2 pods are evicted")


async def test_q09_a_group_whose_minimum_is_there_again_stays(gangs: Gangs) -> None:
    async with scheduling(gangs.cluster, stale_group_seconds=8):
        await running_gang(gangs)
        await gangs.cluster.delete("g-2")
        await below(gangs)
        await gangs.pod("again", annotations=GROUP)
        await gangs.cluster.bound("again")
        await gangs.pass_time(8)
        assert not (await gangs.cluster.get("g-0")).metadata.deleting
        status = await gangs.status("g")
        assert [(each["type"], each["status"]) for each in status["conditions"]] == [("BelowMinimum", "False")]


async def test_q09_minus_one_is_never(gangs: Gangs) -> None:
    async with scheduling(gangs.cluster, stale_group_seconds=-1):
        await running_gang(gangs)
        await gangs.cluster.delete("g-2")
        await below(gangs)
        await gangs.pass_time(3)
        assert not (await gangs.cluster.get("g-0")).metadata.deleting


async def test_q09_pods_above_the_minimum_can_go(gangs: Gangs) -> None:
    async with scheduling(gangs.cluster, stale_group_seconds=0):
        await running_gang(gangs, 3, minimum=2)
        await gangs.cluster.delete("g-2")
        await gangs.status("g", running=2)
        await gangs.pass_time(3)
        assert not (await gangs.cluster.get("g-0")).metadata.deleting


async def test_q09_a_group_whose_pods_finish_is_not_evicted(gangs: Gangs) -> None:
    async with scheduling(gangs.cluster, stale_group_seconds=0):
        await running_gang(gangs)
        await gangs.cluster.set_phase("g-2", "Succeeded")
        await gangs.status("g", running=2, succeeded=1, phase="Running")
        await gangs.pass_time(4)
        assert not (await gangs.cluster.get("g-0")).metadata.deleting


async def test_q09_the_next_leader_knows_since_when(gangs: Gangs) -> None:
    async with scheduling(gangs.cluster, stale_group_seconds=60):
        await running_gang(gangs)
        await gangs.cluster.delete("g-2")
        since = (await below(gangs))["lastTransitionTime"]
    await gangs.cluster.end_lease()
    assert since > await below_since_a_minute(gangs)
    async with scheduling(gangs.cluster, stale_group_seconds=60):
        await leaving(gangs, "g-0", "g-1")


async def below_since_a_minute(gangs: Gangs) -> str:
    """As if an earlier leader had said so."""
    long_ago = clock.timestamp(datetime.now(UTC) - timedelta(seconds=61))
    condition = {"type": "BelowMinimum", "status": "True", "lastTransitionTime": long_ago}
    patch = {"status": {"conditions": [condition]}}
    await gangs.client.patch(kinds.POD_GROUPS, "g", patch, namespace="default", subresource="status")
    return long_ago


async def test_q09_a_group_that_finishes_while_nobody_leads_is_not_evicted(gangs: Gangs) -> None:
    async with scheduling(gangs.cluster):
        await running_gang(gangs)
    await gangs.cluster.end_lease()
    await gangs.cluster.set_phase("g-2", "Succeeded")
    await below_since_a_minute(gangs)
    async with scheduling(gangs.cluster):
        await gangs.pass_time(4)
        assert not (await gangs.cluster.get("g-0")).metadata.deleting


async def test_q09_what_a_budget_forbids_is_tried_again(gangs: Gangs) -> None:
    budget = {
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    await gangs.client.create(kinds.POD_DISRUPTION_BUDGETS, budget)
    try:
        async with scheduling(gangs.cluster, stale_group_seconds=0):
            await running_gang(gangs, 2)
            await gangs.client.patch(kinds.PODS, "g-0", {"metadata": {"labels": {"app": "kept"}}}, namespace="default")
            await gangs.cluster.delete("g-1")
            await gangs.event("PodGroup", "g", "StaleJob", "0 of 1 pods are evicted, the others later")
            assert not (await gangs.cluster.get("g-0")).metadata.deleting
            await gangs.client.delete(kinds.POD_DISRUPTION_BUDGETS, "keep", namespace="default")
            await leaving(gangs, "g-0")
    finally:
        for found in (await gangs.client.list(kinds.POD_DISRUPTION_BUDGETS)).items:
            await gangs.client.delete(kinds.POD_DISRUPTION_BUDGETS, found["metadata"]["name"], namespace="default")


async def test_q09_a_gang_of_an_owner_is_evicted_too(gangs: Gangs) -> None:
    await gangs.cluster.node("n1", gpus=2, mig=0, resources={names.NVIDIA_GPU: "2"})
    async with scheduling(gangs.cluster, stale_group_seconds=1):
        await gangs.gang("train", 2)
        await gangs.cluster.bound("train-0", "train-1")
        await gangs.cluster.delete("train-1")
        await leaving(gangs, "train-0")
        made = await gangs.pod_group(2)
        await gangs.event("PodGroup", made["metadata"]["name"], "StaleJob", "1 of at least 2 pods run")


async def without_pod_groups(gangs: Gangs) -> None:
    """As on a cluster where the kind is not installed."""
    name = f"{kinds.POD_GROUPS.plural}.{kinds.POD_GROUPS.group}"
    await gangs.client.delete(kinds.CUSTOM_RESOURCE_DEFINITIONS, name)

    async def gone() -> bool:
        try:
            await gangs.client.list(kinds.POD_GROUPS)
        except errors.NotFound:
            return True
        return False

    await until(gone)


async def test_q09_without_podgroups_a_gang_of_an_owner_is_evicted_too(cluster: ApiCluster) -> None:
    gangs = Gangs(cluster)
    await gangs.install()
    await without_pod_groups(gangs)
    await cluster.node("n1", gpus=4, mig=0, resources={names.NVIDIA_GPU: "4"})
    async with scheduling(cluster, stale_group_seconds=10):
        await gangs.gang("train", 2)
        await gangs.gang("done", 2)
        await cluster.bound("train-0", "train-1", "done-0", "done-1")
        await cluster.set_phase("done-1", "Succeeded")
        await cluster.delete("train-1")
        await gangs.pass_time(2)
        assert not (await cluster.get("train-0")).metadata.deleting
        await leaving(gangs, "train-0")
        await gangs.event("Pod", "train-0", "Evicted", "below its minimum for 10 s: 1 of at least 2 pods run")
        await gangs.pass_time(3)
        assert not (await cluster.get("done-0")).metadata.deleting, "its pods have begun to finish"


async def test_q09_without_podgroups_a_gang_that_is_complete_again_stays(cluster: ApiCluster) -> None:
    gangs = Gangs(cluster)
    await gangs.install()
    await without_pod_groups(gangs)
    await cluster.node("n1", gpus=2, mig=0, resources={names.NVIDIA_GPU: "2"})
    async with scheduling(cluster, stale_group_seconds=12):  # less than both times together
        owner = await gangs.gang("train", 2)
        await cluster.bound("train-0", "train-1")
        for number in range(2):
            await cluster.delete("train-1")
            await gangs.pass_time(7)
            await gangs.pod("train-1", owner)
            await cluster.bound("train-1")
            await gangs.pass_time(1)
            assert not (await cluster.get("train-0")).metadata.deleting, number


@pytest.mark.parametrize("after", [False, True])
async def test_q09_a_leader_that_dies_while_it_evicts_leaves_the_rest_to_the_next(gangs: Gangs, *, after: bool) -> None:
    proxy = _Cut(after=after)
    async with scheduling(gangs.cluster, gangs.cluster.wire(proxy), stale_group_seconds=0):
        await running_gang(gangs)
        await gangs.cluster.delete("g-2")
        await proxy.dead.wait()
    await gangs.cluster.end_lease()
    async with scheduling(gangs.cluster, stale_group_seconds=0):
        await leaving(gangs, "g-0", "g-1")


class _Cut(Proxy):
    """Dies when it evicts a pod."""

    async def __call__(self, request: HttpRequest, onwards: Onwards) -> Response:
        if request.path.endswith("/eviction"):
            self.cut_at = len(self.calls)
        return await super().__call__(request, onwards)
