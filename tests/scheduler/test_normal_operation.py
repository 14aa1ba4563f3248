"""What the scheduler does to a cluster when nothing goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from apportion.apis import kinds, names
from apportion.apis.custom_resources.claims import claim_name
from apportion.apis.installation import Installation
from apportion.cluster.transport import HttpRequest, Response
from tests.scheduler.cluster import NAMESPACE, ApiCluster, scheduling, until


async def test_s06_a_pod_gets_its_claim_and_then_its_node(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    uid = await cluster.pod("a", slices={"1g.5gb": 1})
    async with scheduling(cluster):
        assert await cluster.bound("a") == {"a": "n1"}
    (claim,) = await cluster.claims()
    assert claim.name == claim_name(uid, "main", 0) == f"{uid}-main-0"
    assert claim.metadata.finalizers == [names.SLICE_FINALIZER]
    assert claim.metadata.owner_references == []
    spec = claim.spec
    assert (spec.profile, spec.nodename, spec.containers) == ("1g.5gb", "n1", ["main"])
    assert spec.gpu_uuid in cluster.gpus["n1"]
    assert (spec.pod_ref.kind, spec.pod_ref.namespace, spec.pod_ref.name) == ("Pod", "default", "a")
    assert spec.pod_ref.uid == uid
    wire = await cluster.client.get(kinds.ALLOCATION_CLAIMS, claim.name, namespace=NAMESPACE)
    assert wire["spec"]["podRef"] == {"kind": "Pod", "namespace": "default", "name": "a", "uid": uid}
    assert claim.state == "created"
    (condition,) = claim.status.conditions
    assert (condition.type, condition.status) == ("State", "True")
    assert (condition.reason, condition.message) == ("created", "Allocation is created")


async def test_s06_the_first_state_of_a_claim_costs_no_write(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    await cluster.pod("a", slices={"1g.5gb": 1})
    writes: list[str] = []

    async def count(request: HttpRequest, onwards: Callable[[], Awaitable[Response]]) -> Response:
        if request.method != "GET" and "/leases" not in request.path:
            writes.append(f"{request.method} {request.path.rpartition('/')[2]}")
        return await onwards()

    async def told() -> bool:
        return any("events" in write for write in writes)

    listing = await cluster.client.list(kinds.ALLOCATION_CLAIMS, namespace=NAMESPACE)
    async with scheduling(cluster, cluster.wire(count)):
        await cluster.bound("a")
        await until(told)
    assert sorted(writes) == ["POST allocationclaims", "POST binding", "POST events"]
    watch = cluster.client.watch(
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


async def test_s06_claims_are_written_before_the_binding(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    listing = await cluster.client.list(kinds.PODS)
    await cluster.pod("a", slices={"1g.5gb": 2, "2g.10gb": 1})
    async with scheduling(cluster):
        await cluster.bound("a")
    claims = await cluster.claims()
    assert sorted(claim.spec.profile for claim in claims) == ["1g.5gb", "1g.5gb", "2g.10gb"]
    watch = cluster.client.watch(
        kinds.PODS, namespace="default", resource_version=listing.resource_version, timeout_seconds=1
    )
    bindings = [int(e.resource_version) async for e in watch if e.object and e.object["spec"].get("nodeName")]
    created = await cluster.client.list(kinds.ALLOCATION_CLAIMS, namespace=NAMESPACE)
    assert all(int(claim["metadata"]["resourceVersion"]) < bindings[0] for claim in created.items)


async def test_fourteen_run_the_fifteenth_waits_and_runs_within_two_seconds_after_one_is_gone(
    each_cluster: ApiCluster,
) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    names_ = [f"p{number:02}" for number in range(15)]
    async with scheduling(cluster):
        for name in names_:
            await cluster.pod(name, slices={"1g.5gb": 1})
        await cluster.bound(*names_[:14])
        await cluster.no_overlap()
        sentence = await cluster.waits("p14")
        assert "0/1 nodes are available for 1 x 1g.5gb" in sentence
        assert "14 of 14" in sentence

        async def event() -> list[object]:
            listing = await cluster.client.list(kinds.EVENTS, namespace="default")
            return [e for e in listing.items if e["involvedObject"]["name"] == "p14" and e["message"] == sentence]

        assert (await until(event))[0]["reason"] == "FailedScheduling"  # type: ignore[index]
        await cluster.delete("p03")
        await cluster.bound("p14")
        await cluster.no_overlap()


async def test_only_pods_of_ours_that_are_not_gated_are_placed(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    async with scheduling(cluster):
        await cluster.pod("foreign", slices={"1g.5gb": 1}, scheduler="default-scheduler")
        await cluster.pod("gated", slices={"1g.5gb": 1}, gates=["wait.example/for-it"])
        await cluster.pod("kai", slices={"1g.5gb": 1}, scheduler=names.KAI_SCHEDULER)
        await cluster.pod("das", slices={"1g.5gb": 1})
        await cluster.bound("kai", "das")
        assert not (await cluster.get("foreign")).spec.node_name
        assert not (await cluster.get("gated")).spec.node_name
        await cluster.client.patch(kinds.PODS, "gated", {"spec": {"schedulingGates": None}}, namespace="default")
        await cluster.bound("gated")
    assert len(await cluster.claims()) == 3


async def test_whole_gpus_and_plain_pods_are_placed_by_ordinary_resources(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("small", gpus=0, agent=False, resources={"cpu": "1"})
    await cluster.node("big", gpus=0, agent=False, resources={names.NVIDIA_GPU: "2"})
    async with scheduling(cluster):
        await cluster.pod("whole", limits={names.NVIDIA_GPU: "2"})
        await cluster.pod("hungry", limits={"cpu": "8"})
        assert await cluster.bound("whole", "hungry") == {"whole": "big", "hungry": "big"}
        await cluster.pod("too-much", limits={names.NVIDIA_GPU: "1"})
        assert names.NVIDIA_GPU in await cluster.waits("too-much")
        await cluster.delete("whole")
        await cluster.bound("too-much")
    assert await cluster.claims() == []


async def test_s09_slices_go_only_to_nodes_whose_agent_is_ready(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1", agent=False)
    async with scheduling(cluster):
        await cluster.pod("a", slices={"1g.5gb": 1})
        assert "no ready node agent" in await cluster.waits("a")
        await cluster.agent_ready("n1", ready=True)
        await cluster.bound("a")
        await cluster.agent_ready("n1", ready=False)
        await cluster.pod("b", slices={"1g.5gb": 1})
        await cluster.waits("b")
        await cluster.client.delete(kinds.PODS, "agent-n1", namespace=NAMESPACE, grace=0)
        await cluster.agent_pod("n1", ready=True)
        await asyncio.sleep(0.3)
        assert not (await cluster.get("b")).spec.node_name, "the accelerator names an agent that is gone"


async def test_pods_of_higher_priority_come_first(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1", gpus=1)
    await cluster.pod("low", slices={"7g.40gb": 1}, priority=1)
    await cluster.pod("high", slices={"7g.40gb": 1}, priority=100)
    async with scheduling(cluster):
        await cluster.bound("high")
        await cluster.waits("low")


async def test_a_pod_that_was_refused_by_the_kubelet_holds_nothing_but_its_claim(
    each_cluster: ApiCluster,
) -> None:
    cluster = each_cluster
    await cluster.node("n1", gpus=1)
    cluster.agents.clear()
    async with scheduling(cluster):
        await cluster.pod("a", slices={"7g.40gb": 1}, limits={"cpu": "60"})
        await cluster.bound("a")
        await cluster.set_phase("a", "Failed")
        await cluster.pod("cpu", limits={"cpu": "60"})
        await cluster.bound("cpu")
        await cluster.delete("cpu")
        await cluster.pod("b", slices={"7g.40gb": 1})
        assert "7g.40gb" in await cluster.waits("b")
        cluster.agents.add("n1")
        await cluster.bound("b")


async def test_a_pod_that_can_never_be_right_is_told_so(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    async with scheduling(cluster):
        await cluster.pod("odd", slices={"1g.5gb": 1}, annotations={names.POLICY: "luck"})
        sentence = await cluster.waits("odd")
        assert names.POLICY in sentence
        assert "luck" in sentence
        await cluster.client.patch(
            kinds.PODS, "odd", {"metadata": {"annotations": {names.POLICY: "pack"}}}, namespace="default"
        )
        await cluster.bound("odd")


async def test_a_node_that_comes_helps_those_who_wait(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    async with scheduling(cluster):
        await cluster.pod("a", slices={"1g.5gb": 1})
        assert "0/0 nodes" in await cluster.waits("a")
        await cluster.node("n1")
        await cluster.bound("a")


async def test_r02_claims_and_accelerators_are_in_the_namespace_of_the_installation(cluster: ApiCluster) -> None:
    other = "gpus"
    await cluster.client.apply(kinds.NAMESPACES, {"metadata": {"name": other}}, field_manager="test")
    await cluster.node("n1")
    report = await cluster.client.get(kinds.NODE_ACCELERATORS, "n1", namespace=names.DAS_NAMESPACE)
    moved = {"metadata": {"name": "n1", "namespace": other}, "spec": report["spec"]}
    await cluster.client.create(kinds.NODE_ACCELERATORS, moved, namespace=other)
    status = {"status": report["status"]}
    await cluster.client.patch(kinds.NODE_ACCELERATORS, "n1", status, namespace=other, subresource="status")
    await cluster.client.delete(kinds.NODE_ACCELERATORS, "n1", namespace=names.DAS_NAMESPACE)
    uid = await cluster.pod("a", slices={"1g.5gb": 1})
    async with scheduling(cluster, installation=Installation(namespace=other)):
        assert await cluster.bound("a") == {"a": "n1"}
    lease = await cluster.client.get(kinds.LEASES, names.SCHEDULER_LEASE, namespace=other)
    assert lease["spec"]["leaseTransitions"] is not None
    claims = await cluster.client.list(kinds.ALLOCATION_CLAIMS, namespace=other)
    assert [claim["spec"]["podRef"]["uid"] for claim in claims.items] == [uid]
    assert await cluster.claims() == []
    for claim in claims.items:
        free = {"metadata": {"finalizers": None}}
        await cluster.client.patch(kinds.ALLOCATION_CLAIMS, claim["metadata"]["name"], free, namespace=other)
