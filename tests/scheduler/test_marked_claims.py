"""S06, T04: the leader evicts the pod of a claim that its agent marked; agents themselves evict nobody."""

from __future__ import annotations

from typing import Any

import msgspec

from apportion.apis import kinds
from apportion.apis.custom_resources import claims
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.identities import NodeName
from apportion.apis.meta import ObjectMeta, to_wire
from apportion.cluster import errors
from tests.scheduler.cluster import NAMESPACE, ApiCluster, scheduling, until

WHY = "GPU-1 is taken, and no other placement for 1g.5gb is free on this node"


async def mark(cluster: ApiCluster, claim: AllocationClaim, *, state: str = claims.CREATED) -> None:
    condition = to_wire(claims.lost_condition(WHY, now="2026-01-01T00:00:00Z"))
    patch = {"status": {"state": state, "conditions": [condition]}}
    await cluster.client.patch(kinds.ALLOCATION_CLAIMS, claim.name, patch, namespace=NAMESPACE, subresource="status")


async def is_gone(cluster: ApiCluster, name: str) -> bool:
    try:
        return (await cluster.get(name)).metadata.deleting
    except errors.NotFound:
        return True


async def lost_events(cluster: ApiCluster, pod: str) -> list[dict[str, Any]]:
    found = await cluster.client.list(kinds.EVENTS, namespace="default", fields=f"involvedObject.name={pod}")
    return [event for event in found.items if event["reason"] == "SliceLost"]


async def test_s06_the_pod_of_a_marked_claim_is_evicted_with_the_reason(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    for name in ("loser", "other"):
        await cluster.pod(name, slices={"1g.5gb": 1})
    async with scheduling(cluster):
        await cluster.bound("loser", "other")
        (claim,) = [each for each in await cluster.claims() if each.spec.pod_ref.name == "loser"]
        await mark(cluster, claim)
        await until(lambda: is_gone(cluster, "loser"))
        (event,) = await until(lambda: lost_events(cluster, "loser"))
        assert event["message"] == f"{WHY}: the pod is evicted"
        assert not await is_gone(cluster, "other")


async def test_s06_the_next_leader_evicts_what_was_marked_before(cluster: ApiCluster) -> None:
    await cluster.node("n1")
    await cluster.pod("loser", slices={"1g.5gb": 1})
    async with scheduling(cluster):
        await cluster.bound("loser")
    (claim,) = await cluster.claims()
    await mark(cluster, claim)
    async with scheduling(cluster):
        await until(lambda: is_gone(cluster, "loser"))


async def test_s06_a_disruption_budget_delays_the_eviction(cluster: ApiCluster) -> None:
    budgets = kinds.Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True)
    await cluster.node("n1")
    await cluster.pod("loser", slices={"1g.5gb": 1}, labels={"app": "loser"})
    async with scheduling(cluster):
        await cluster.bound("loser")
        body = {
            "metadata": {"name": "all"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "loser"}}},
        }
        await cluster.client.create(budgets, body, namespace="default")
        status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        await cluster.client.patch(kinds.PODS, "loser", status, namespace="default", subresource="status")
        (claim,) = await cluster.claims()
        await mark(cluster, claim)
        await until(lambda: lost_events(cluster, "loser"))
        assert not await is_gone(cluster, "loser")
        await cluster.client.delete(budgets, "all", namespace="default")
        await until(lambda: is_gone(cluster, "loser"))


async def test_t04_a_mark_from_a_node_where_the_pod_does_not_run_evicts_nobody(cluster: ApiCluster) -> None:
    await cluster.node("n1")
    await cluster.node("n2")
    await cluster.pod("victim", slices={"1g.5gb": 1})
    async with scheduling(cluster):
        node = (await cluster.bound("victim"))["victim"]
    (claim,) = await cluster.claims()
    forged = AllocationClaim(
        metadata=ObjectMeta(name=f"{claim.name}-forged"),
        spec=msgspec.structs.replace(claim.spec, nodename=NodeName("n2" if node == "n1" else "n1")),
    )
    await cluster.client.create(kinds.ALLOCATION_CLAIMS, forged, namespace=NAMESPACE)
    await mark(cluster, forged, state=claims.PROCESSING)
    async with scheduling(cluster):
        await cluster.pod("later", slices={"1g.5gb": 1})
        await cluster.bound("later")
        assert not await is_gone(cluster, "victim")
