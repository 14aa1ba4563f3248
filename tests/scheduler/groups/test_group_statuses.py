"""The status of PodGroups, in the form of the original, and their events."""

from __future__ import annotations

from typing import Any

from apportion.apis import kinds, names
from apportion.cluster.transport import HttpRequest, Response
from tests.builders import groups
from tests.scheduler.cluster import scheduling, until
from tests.scheduler.cut_connections import Onwards
from tests.scheduler.groups.gangs import Gangs, Json

GROUP = {names.POD_GROUP: "g"}


async def two_gpus(gangs: Gangs) -> None:
    await gangs.cluster.node("n1", gpus=2, mig=0, resources={names.NVIDIA_GPU: "2"})


async def a_group(gangs: Gangs, size: int, minimum: int = 1, **spec: Any) -> None:
    await gangs.client.create(kinds.POD_GROUPS, groups.pod_group("g", minimum, **spec))
    for number in range(size):
        await gangs.pod(f"g-{number}", annotations=GROUP)


async def waits(gangs: Gangs, reason: str) -> Json:
    """The condition of the group, once it has this reason."""

    async def found() -> Json | None:
        status = (await gangs.client.get(kinds.POD_GROUPS, "g", namespace="default")).get("status", {})
        conditions = status.get("schedulingConditions") or [{}]
        return conditions[0] if conditions[0].get("reasons", [{}])[0].get("reason") == reason else None

    return await until(found)


async def test_q12_a_group_that_runs_says_what_it_holds(gangs: Gangs) -> None:
    await two_gpus(gangs)
    async with scheduling(gangs.cluster):
        await a_group(gangs, 3, minimum=2)
        await gangs.cluster.bound("g-0", "g-1")
        await gangs.cluster.set_phase("g-0", "Running")
        await gangs.cluster.set_phase("g-1", "Running")
        status = await gangs.status("g", running=2, pending=1, phase="Running")
        assert status["resourcesStatus"]["allocated"][names.NVIDIA_GPU] == "2"
        assert status["resourcesStatus"]["requested"][names.NVIDIA_GPU] == "3"
        await gangs.cluster.set_phase("g-0", "Succeeded")
        await gangs.cluster.bound("g-2")
        await gangs.cluster.set_phase("g-1", "Failed")
        await gangs.cluster.set_phase("g-2", "Succeeded")
        status = await gangs.status("g", succeeded=2, failed=1, phase="Failed")
        assert status["resourcesStatus"]["allocated"][names.NVIDIA_GPU] == "0"


async def test_q12_a_group_above_the_limit_of_its_queue_has_the_numbers_in_its_status(gangs: Gangs) -> None:
    await two_gpus(gangs)
    limited: Json = {"resources": {"gpu": {"quota": 1, "limit": 1}}}
    await gangs.client.create(kinds.QUEUES, groups.queue("top", **limited))
    await gangs.client.create(kinds.QUEUES, groups.queue("team", parent="top", gpus=1))
    async with scheduling(gangs.cluster):
        await a_group(gangs, 2, minimum=2, queue="team")
        condition = await waits(gangs, "OverLimit")
        message = condition["message"]
        assert (condition["type"], condition["nodePool"], condition["status"]) == (
            "UnschedulableOnNodePool",
            "default",
            "True",
        )
        details = condition["reasons"][0]["details"]["queueDetails"]
        assert details["name"] == "top", "the queue above stops it"
        assert details["queueResourceLimits"] == {names.NVIDIA_GPU: "1"}
        assert details["queueDeservedResources"][names.NVIDIA_GPU] == "1"
        assert details["podGroupRequestedResources"][names.NVIDIA_GPU] == "2"
        assert details["queueRequestedResources"][names.NVIDIA_GPU] == "2"
        assert "queue top" in message
        assert "limit" in message
        await gangs.event("PodGroup", "g", "Unschedulable", "queue top", "limit")
        more = {"spec": {"resources": {"gpu": {"limit": 2}}}}
        await gangs.client.patch(kinds.QUEUES, "top", more)
        await gangs.cluster.bound("g-0", "g-1")
        assert await gangs.status("g", schedulingConditions=[])


async def test_q12_a_group_that_is_not_preemptible_and_above_quota_says_so(gangs: Gangs) -> None:
    await two_gpus(gangs)
    await gangs.client.create(kinds.QUEUES, groups.queue("team", gpus=1))
    async with scheduling(gangs.cluster):
        await a_group(gangs, 2, minimum=2, queue="team", preemptibility="non-preemptible")
        condition = await waits(gangs, "NonPreemptibleOverQuota")
        details = condition["reasons"][0]["details"]["queueDetails"]
        assert details["name"] == "team"
        assert details["podGroupRequestedNonPreemptibleResources"][names.NVIDIA_GPU] == "2"


async def test_q12_a_group_of_an_unknown_queue_says_so_and_then_why_else(gangs: Gangs) -> None:
    await two_gpus(gangs)
    await gangs.client.create(kinds.QUEUES, groups.queue("team", gpus=1))
    async with scheduling(gangs.cluster):
        await a_group(gangs, 3, minimum=3, queue="absent")
        condition = await waits(gangs, "QueueDoesNotExist")
        assert "queue absent does not exist" in condition["message"]
        first = int(condition["transitionID"])
        await gangs.client.patch(kinds.POD_GROUPS, "g", {"spec": {"queue": "team"}}, namespace="default")
        condition = await waits(gangs, "PodSchedulingErrors")
        assert "0/1 nodes are available" in condition["message"]
        assert int(condition["transitionID"]) > first


async def test_q12_a_group_whose_pods_do_not_exist_yet_is_not_ready(gangs: Gangs) -> None:
    await two_gpus(gangs)
    async with scheduling(gangs.cluster):
        await a_group(gangs, 1, minimum=2)
        await waits(gangs, "PodSchedulingErrors")
        await gangs.event("PodGroup", "g", "NotReady", "minimum")
        await gangs.status("g", phase="Pending", pending=1)


async def test_q12_a_pod_group_that_cannot_be_used_says_what_is_wrong_with_it(gangs: Gangs) -> None:
    cycle = [{"name": name, "parent": parent} for name, parent in (("a", "b"), ("b", "c"), ("c", "a"))]
    async with scheduling(gangs.cluster):
        await a_group(gangs, 1, subGroups=cycle)
        condition = await waits(gangs, "PodSchedulingErrors")
        assert "spec.subGroups[0].parent" in condition["message"]


async def test_q12_a_single_pod_with_a_pod_group_has_a_status_too(gangs: Gangs) -> None:
    await gangs.cluster.node("n1", gpus=1, mig=0, resources={names.NVIDIA_GPU: "1"})
    await gangs.config(everyPod=True)
    async with scheduling(gangs.cluster):
        uid = await gangs.pod("first")
        await gangs.cluster.bound("first")
        await gangs.cluster.set_phase("first", "Running")

        async def runs() -> Json | None:
            found = {each["metadata"]["name"]: each.get("status", {}) for each in await gangs.pod_groups()}
            return found if found.get(f"pg-first-{uid}", {}).get("phase") == "Running" else None

        await until(runs)
        uid = await gangs.pod("second")

        async def waits_too() -> bool:
            found = {each["metadata"]["name"]: each.get("status", {}) for each in await gangs.pod_groups()}
            conditions = found.get(f"pg-second-{uid}", {}).get("schedulingConditions") or [{}]
            return conditions[0].get("reason") == "PodSchedulingErrors"

        await until(waits_too)


async def test_q12_a_status_that_says_all_is_not_written_again(gangs: Gangs) -> None:
    written: list[str] = []

    async def counted(request: HttpRequest, onwards: Onwards) -> Response:
        if "/podgroups/" in request.path and request.path.endswith("/status"):
            written.append(request.path)
        return await onwards()

    await two_gpus(gangs)
    async with scheduling(gangs.cluster, gangs.cluster.wire(counted)):
        await a_group(gangs, 2, minimum=2)
        await gangs.cluster.bound("g-0", "g-1")
        await gangs.status("g", pending=2, schedulingConditions=[])
        await gangs.pass_time(4)
        before = len(written)
        assert before
        await gangs.client.patch(kinds.PODS, "g-0", {"metadata": {"labels": {"any": "label"}}}, namespace="default")
        await gangs.pass_time(4)
        assert len(written) == before


async def test_q12_conditions_of_others_stay(gangs: Gangs) -> None:
    await two_gpus(gangs)
    await gangs.client.create(kinds.POD_GROUPS, groups.pod_group("g", 1))
    theirs = {"type": "Theirs", "status": "True"}
    await gangs.client.patch(
        kinds.POD_GROUPS, "g", {"status": {"conditions": [theirs]}}, namespace="default", subresource="status"
    )
    async with scheduling(gangs.cluster):
        await gangs.pod("g-0", annotations=GROUP)
        await gangs.cluster.bound("g-0")
        status = await gangs.status("g", pending=1)
        assert [each["type"] for each in status["conditions"]] == ["Theirs"]
