"""Agents that stop while pods are on their way to the node: nothing is bound there, and rejected pods are told why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from apportion.apis import kinds
from apportion.cli import why
from apportion.cluster.transport import HttpRequest, Response
from tests.builders import pods
from tests.cli.cli_runner import called
from tests.scheduler.cluster import ApiCluster, scheduling, until

Onwards = Callable[[], Awaitable[Response]]


async def test_s09_nothing_is_bound_to_a_node_whose_agent_stopped_after_the_decision(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1", gpus=1)
    decided, go_on = asyncio.Event(), asyncio.Event()

    async def slow_claims(request: HttpRequest, onwards: Onwards) -> Response:
        if request.method == "POST" and "allocationclaims" in request.path:
            decided.set()
            await go_on.wait()
        return await onwards()

    await cluster.pod("a", slices={"1g.5gb": 1})
    async with scheduling(cluster, cluster.wire(slow_claims)):
        async with asyncio.timeout(40):
            await decided.wait()
        await cluster.agent_ready("n1", ready=False)
        await cluster.pod("witness", slices={"1g.5gb": 1})
        assert "no ready node agent" in await cluster.waits("witness"), "the scheduler knows it"
        go_on.set()
        assert "is not ready any more" in await cluster.waits("a") or "no ready node agent" in await cluster.waits("a")
        await until(lambda: told(cluster, "a", "FailedScheduling"))
        assert not (await cluster.get("a")).spec.node_name
        await cluster.agent_ready("n1", ready=True)
        assert await cluster.bound("a", "witness") == {"a": "n1", "witness": "n1"}


async def told(cluster: ApiCluster, pod: str, reason: str) -> str:
    listing = await cluster.client.list(kinds.EVENTS, namespace="default")
    found = [e for e in listing.items if e["involvedObject"]["name"] == pod and e["reason"] == reason]
    return found[0]["message"] if found else ""


async def rejected(cluster: ApiCluster, name: str) -> None:
    """What a kubelet writes that has no devices for the pod."""
    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed: no devices"}
    await cluster.client.patch(kinds.PODS, name, {"status": status}, namespace="default", subresource="status")


async def test_s08_a_bare_pod_that_its_kubelet_rejected_is_told_what_to_do(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1", gpus=1)
    await cluster.pod("bare", slices={"1g.5gb": 1})
    await cluster.pod("owned", slices={"1g.5gb": 1}, owner="5c1bb9a0-0000-0000-0000-000000000001")
    async with scheduling(cluster):
        await cluster.bound("bare", "owned")
        await rejected(cluster, "bare")
        await rejected(cluster, "owned")
        bare = await until(lambda: told(cluster, "bare", "RejectedByKubelet"))
        owned = await until(lambda: told(cluster, "owned", "RejectedByKubelet"))
    assert "UnexpectedAdmissionError: Allocate failed: no devices" in bare
    assert "delete the pod and create it again" in bare
    assert "ReplicaSet owner creates a replacement" in owned
    code, out, err = await called(why.command, pod="bare", output="json", kubeconfig=cluster.kubeconfig)
    assert code == 0, err
    assert json.loads(out)["sentence"] == bare


async def test_s10_a_pod_created_without_the_webhook_is_told_how_to_get_a_place(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    unchanged = pods.pod("unchanged", mig={"1g.5gb": 1})
    await cluster.client.create(kinds.PODS, unchanged)
    await cluster.client.create(kinds.PODS, pods.pod("impossible", mig={"9g.999gb": 1}))
    async with scheduling(cluster):
        await cluster.node("n1", gpus=1)
        text = await until(lambda: told(cluster, "unchanged", "NotAdmitted"))
        await cluster.pod("admitted", slices={"1g.5gb": 1})
        await cluster.bound("admitted")
        assert not await told(cluster, "admitted", "NotAdmitted")
        assert not await told(cluster, "impossible", "NotAdmitted")
    assert "No node offers nvidia.com/mig-1g.5gb" in text
    assert "mig.das.com/1g.5gb" in text
    assert "Delete the pod and create it again." in text
    code, out, err = await called(why.command, pod="unchanged", output="json", kubeconfig=cluster.kubeconfig)
    assert code == 0, err
    assert (json.loads(out)["sentence"], json.loads(out)["layer"]) == (text, "admission")


async def test_d01_a_pod_with_a_static_device_somewhere_is_left_to_its_scheduler(cluster: ApiCluster) -> None:
    await cluster.client.create(kinds.PODS, pods.pod("static", mig={"1g.5gb": 1}))
    await cluster.node("n1", gpus=1, resources={"nvidia.com/mig-1g.5gb": "7"})
    code, out, err = await called(why.command, pod="static", output="json", kubeconfig=cluster.kubeconfig)
    assert code == 0, err
    assert json.loads(out)["state"] == "foreign"
    assert "layer" not in json.loads(out)
