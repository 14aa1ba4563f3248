"""What the scheduler does to a cluster when nothing goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from apportion.apis import kinds, names
from apportion.apis.claims import claim_name
from apportion.cluster.transport import Request, Response
from tests.scheduler.ground import NAMESPACE, Ground, scheduling, until


async def test_s06_a_pod_gets_its_claim_and_then_its_node(any_ground: Ground) -> None:
    ground = any_ground
    await ground.node("n1")
    uid = await ground.pod("a", slices={"1g.5gb": 1})
    async with scheduling(ground):
        assert await ground.bound("a") == {"a": "n1"}
    (claim,) = await ground.claims()
    assert claim.name == claim_name(uid, "main", 0) == f"{uid}-main-0"
    assert claim.metadata.finalizers == [names.SLICE_FINALIZER]
    assert claim.metadata.owner_references == []
    spec = claim.spec
    assert (spec.profile, spec.nodename, spec.containers) == ("1g.5gb", "n1", ["main"])
    assert spec.gpu_uuid in ground.gpus["n1"]
    assert (spec.pod_ref.kind, spec.pod_ref.namespace, spec.pod_ref.name) == ("Pod", "default", "a")
    assert spec.pod_ref.uid == uid
    wire = await ground.client.get(kinds.ALLOCATION_CLAIMS, claim.name, namespace=NAMESPACE)
    assert wire["spec"]["podRef"] == {"kind": "Pod", "namespace": "default", "name": "a", "uid": uid}
    assert claim.state == "created"
    (condition,) = claim.status.conditions
    assert (condition.type, condition.status) == ("State", "True")
    assert (condition.reason, condition.message) == ("created", "Allocation is created")


async def test_s06_the_first_state_of_a_claim_costs_no_write(any_ground: Ground) -> None:
    ground = any_ground
    await ground.node("n1")
    await ground.pod("a", slices={"1g.5gb": 1})
    writes: list[str] = []

    async def count(request: Request, onwards: Callable[[], Awaitable[Response]]) -> Response:
        if request.method != "GET" and "/leases" not in request.path:
            writes.append(f"{request.method} {request.path.rpartition('/')[2]}")
        return await onwards()

    async def told() -> bool:
        return any("events" in write for write in writes)

    listing = await ground.client.list(kinds.ALLOCATION_CLAIMS, namespace=NAMESPACE)
    async with scheduling(ground, ground.wire(count)):
        await ground.bound("a")
        await until(told)
    assert sorted(writes) == ["POST allocationclaims", "POST binding", "POST events"]
    watch = ground.client.watch(
        kinds.ALLOCATION_CLAIMS,
        namespace=NAMESPACE,
        resource_version=listing.resource_version,
        timeout_seconds=1,
    )
    (event,) = [event async for event in watch if event.object and event.type != "BOOKMARK"]
    assert event.object
    assert event.object["status"] == {
        "state": "created",
        "conditions": [
            {"type": "State", "status": "True", "reason": "created", "message": "Allocation is created"},
        ],
    }


async def test_s06_claims_are_written_before_the_binding(any_ground: Ground) -> None:
    ground = any_ground
    await ground.node("n1")
    listing = await ground.client.list(kinds.PODS)
    await ground.pod("a", slices={"1g.5gb": 2, "2g.10gb": 1})
    async with scheduling(ground):
        await ground.bound("a")
    claims = await ground.claims()
    assert sorted(claim.spec.profile for claim in claims) == ["1g.5gb", "1g.5gb", "2g.10gb"]
    watch = ground.client.watch(
        kinds.PODS, namespace="default", resource_version=listing.resource_version, timeout_seconds=1
    )
    bindings = [int(e.resource_version) async for e in watch if e.object and e.object["spec"].get("nodeName")]
    created = await ground.client.list(kinds.ALLOCATION_CLAIMS, namespace=NAMESPACE)
    assert all(int(claim["metadata"]["resourceVersion"]) < bindings[0] for claim in created.items)


async def test_fourteen_run_the_fifteenth_waits_and_runs_within_two_seconds_after_one_is_gone(
    any_ground: Ground,
) -> None:
    ground = any_ground
    await ground.node("n1")
    names_ = [f"p{number:02}" for number in range(15)]
    async with scheduling(ground):
        for name in names_:
            await ground.pod(name, slices={"1g.5gb": 1})
        await ground.bound(*names_[:14])
        await ground.no_overlap()
        sentence = await ground.waits("p14")
        assert "0/1 nodes can take 1 x 1g.5gb" in sentence
        assert "14 of 14" in sentence

        async def event() -> list[object]:
            listing = await ground.client.list(kinds.EVENTS, namespace="default")
            return [e for e in listing.items if e["involvedObject"]["name"] == "p14" and e["message"] == sentence]

        assert (await until(event))[0]["reason"] == "FailedScheduling"  # type: ignore[index]
        await ground.delete("p03")
        await ground.bound("p14")
        await ground.no_overlap()


async def test_only_pods_of_ours_that_are_not_gated_are_placed(any_ground: Ground) -> None:
    ground = any_ground
    await ground.node("n1")
    async with scheduling(ground):
        await ground.pod("foreign", slices={"1g.5gb": 1}, scheduler="default-scheduler")
        await ground.pod("gated", slices={"1g.5gb": 1}, gates=["wait.example/for-it"])
        await ground.pod("kai", slices={"1g.5gb": 1}, scheduler=names.KAI_SCHEDULER)
        await ground.pod("das", slices={"1g.5gb": 1})
        await ground.bound("kai", "das")
        assert not (await ground.get("foreign")).spec.node_name
        assert not (await ground.get("gated")).spec.node_name
        await ground.client.patch(kinds.PODS, "gated", {"spec": {"schedulingGates": None}}, namespace="default")
        await ground.bound("gated")
    assert len(await ground.claims()) == 3


async def test_whole_gpus_and_plain_pods_are_placed_by_ordinary_resources(any_ground: Ground) -> None:
    ground = any_ground
    await ground.node("small", gpus=0, agent=False, resources={"cpu": "1"})
    await ground.node("big", gpus=0, agent=False, resources={names.NVIDIA_GPU: "2"})
    async with scheduling(ground):
        await ground.pod("whole", limits={names.NVIDIA_GPU: "2"})
        await ground.pod("hungry", limits={"cpu": "8"})
        assert await ground.bound("whole", "hungry") == {"whole": "big", "hungry": "big"}
        await ground.pod("too-much", limits={names.NVIDIA_GPU: "1"})
        assert names.NVIDIA_GPU in await ground.waits("too-much")
        await ground.delete("whole")
        await ground.bound("too-much")
    assert await ground.claims() == []


async def test_s09_slices_go_only_to_nodes_whose_agent_is_ready(any_ground: Ground) -> None:
    ground = any_ground
    await ground.node("n1", agent=False)
    async with scheduling(ground):
        await ground.pod("a", slices={"1g.5gb": 1})
        assert "no ready node agent" in await ground.waits("a")
        await ground.agent_ready("n1", ready=True)
        await ground.bound("a")
        await ground.agent_ready("n1", ready=False)
        await ground.pod("b", slices={"1g.5gb": 1})
        await ground.waits("b")
        await ground.client.delete(kinds.PODS, "agent-n1", namespace=NAMESPACE, grace=0)
        await ground.agent_pod("n1", ready=True)
        await asyncio.sleep(0.3)
        assert not (await ground.get("b")).spec.node_name, "the accelerator names an agent that is gone"


async def test_pods_of_higher_priority_come_first(any_ground: Ground) -> None:
    ground = any_ground
    await ground.node("n1", gpus=1)
    await ground.pod("low", slices={"7g.40gb": 1}, priority=1)
    await ground.pod("high", slices={"7g.40gb": 1}, priority=100)
    async with scheduling(ground):
        await ground.bound("high")
        await ground.waits("low")


async def test_a_pod_that_was_refused_by_the_kubelet_holds_nothing_but_its_claim(any_ground: Ground) -> None:
    ground = any_ground
    await ground.node("n1", gpus=1)
    ground.agents.clear()
    async with scheduling(ground):
        await ground.pod("a", slices={"7g.40gb": 1}, limits={"cpu": "60"})
        await ground.bound("a")
        await ground.set_phase("a", "Failed")
        await ground.pod("cpu", limits={"cpu": "60"})
        await ground.bound("cpu")
        await ground.delete("cpu")
        await ground.pod("b", slices={"7g.40gb": 1})
        assert "7g.40gb" in await ground.waits("b")
        ground.agents.add("n1")
        await ground.bound("b")


async def test_a_pod_that_can_never_be_right_is_told_so(any_ground: Ground) -> None:
    ground = any_ground
    await ground.node("n1")
    async with scheduling(ground):
        await ground.pod("odd", slices={"1g.5gb": 1}, annotations={names.POLICY: "luck"})
        sentence = await ground.waits("odd")
        assert names.POLICY in sentence
        assert "luck" in sentence
        await ground.client.patch(
            kinds.PODS, "odd", {"metadata": {"annotations": {names.POLICY: "pack"}}}, namespace="default"
        )
        await ground.bound("odd")


async def test_a_node_that_comes_helps_those_who_wait(any_ground: Ground) -> None:
    ground = any_ground
    async with scheduling(ground):
        await ground.pod("a", slices={"1g.5gb": 1})
        assert "0/0 nodes" in await ground.waits("a")
        await ground.node("n1")
        await ground.bound("a")
