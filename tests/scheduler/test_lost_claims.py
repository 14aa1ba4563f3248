"""Pods whose claims are removed between binding and start: they get new ones, or make room for themselves elsewhere."""

from __future__ import annotations

import asyncio

from apportion.apis import kinds
from apportion.apis.custom_resources.accelerators import UnclaimedSlice
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.meta import to_wire
from apportion.cluster import errors
from tests.scheduler.cluster import NAMESPACE, ApiCluster, scheduling, until


async def removed(cluster: ApiCluster, claim: AllocationClaim) -> None:
    """Without its finalizer: nothing was made for it yet."""
    await cluster.client.patch(
        kinds.ALLOCATION_CLAIMS, claim.name, {"metadata": {"finalizers": []}}, namespace=NAMESPACE
    )
    await cluster.client.delete(kinds.ALLOCATION_CLAIMS, claim.name, namespace=NAMESPACE)


async def reasons(cluster: ApiCluster, pod: str) -> set[str]:
    found = await cluster.client.list(kinds.EVENTS, namespace="default", fields=f"involvedObject.name={pod}")
    return {event["reason"] for event in found.items}


async def test_s06_a_claim_that_is_removed_before_its_pod_starts_is_made_anew(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    await cluster.node("n2")
    await cluster.pod("a", slices={"1g.5gb": 2})
    async with scheduling(cluster):
        node = (await cluster.bound("a"))["a"]
        lost, kept = await cluster.claims()
        await removed(cluster, lost)

        async def again() -> bool:
            claims = {claim.name: claim for claim in await cluster.claims()}
            return lost.name in claims and claims[lost.name].metadata.uid != lost.metadata.uid

        await until(again)
        claims = {claim.name: claim for claim in await cluster.claims()}
        assert claims[lost.name].spec.nodename == node
        assert claims[kept.name].metadata.uid == kept.metadata.uid
        await cluster.no_overlap()

        async def told() -> bool:
            return "SliceClaimedAgain" in await reasons(cluster, "a")

        await until(told)


async def test_s06_a_pod_that_lost_its_claim_and_its_place_is_evicted(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1", gpus=1)
    await cluster.pod("a", slices={"7g.40gb": 1})
    async with scheduling(cluster):
        await cluster.bound("a")
        await cluster.pod("b", slices={"1g.5gb": 1})
        await cluster.waits("b")
        (claim,) = await cluster.claims()
        await removed(cluster, claim)
        await cluster.bound("b")

        async def evicted() -> bool:
            try:
                return (await cluster.get("a")).metadata.deleting
            except errors.NotFound:
                return True

        await until(evicted)

        async def told() -> bool:
            return "SliceLost" in await reasons(cluster, "a")

        await until(told)


async def test_s06_a_pod_that_was_created_with_a_node_gets_no_claim(cluster: ApiCluster) -> None:
    await cluster.node("n1")
    async with scheduling(cluster):
        await cluster.pod("direct", slices={"1g.5gb": 1}, nodeName="n1")
        await cluster.pod("a", slices={"1g.5gb": 1})
        await cluster.bound("a")
        (claim,) = await cluster.claims()
        await removed(cluster, claim)

        async def again() -> bool:
            return bool(await cluster.claims())

        await until(again)
        assert {each.spec.pod_ref.name for each in await cluster.claims()} == {"a"}


async def test_s06_the_claim_of_a_running_pod_is_made_again_from_the_report_of_its_agent(
    each_cluster: ApiCluster,
) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    await cluster.pod("a", slices={"2g.10gb": 1})
    async with scheduling(cluster):
        await cluster.bound("a")
        (lost,) = await cluster.claims()
        await cluster.client.patch(
            kinds.PODS, "a", {"status": {"phase": "Running"}}, namespace="default", subresource="status"
        )
        await removed(cluster, lost)
        place = lost.spec.mig_placement
        reported = UnclaimedSlice(
            lost.name, lost.pod_uid, lost.spec.profile, lost.spec.gpu_uuid, place.start, place.size
        )
        await report(cluster, "n1", [reported])

        async def again() -> AllocationClaim | None:
            return next(iter(await cluster.claims()), None)

        claim = await until(again)
        assert claim.metadata.uid != lost.metadata.uid
        assert (claim.name, claim.spec) == (lost.name, lost.spec)


async def test_s06_a_report_of_slices_of_another_nodes_pod_makes_no_claim(cluster: ApiCluster) -> None:
    await cluster.node("n1")
    await cluster.node("n2")
    await cluster.pod("a", slices={"1g.5gb": 1})
    async with scheduling(cluster):
        node = (await cluster.bound("a"))["a"]
        (lost,) = await cluster.claims()
        await cluster.client.patch(
            kinds.PODS, "a", {"status": {"phase": "Running"}}, namespace="default", subresource="status"
        )
        await removed(cluster, lost)
        liar = "n2" if node == "n1" else "n1"
        forged = UnclaimedSlice(lost.name, lost.pod_uid, lost.spec.profile, lost.spec.gpu_uuid, 0, 1)
        await report(cluster, liar, [forged])
        await asyncio.sleep(6)  # longer than the scheduler waits before it acts
        assert not await cluster.claims()


async def report(cluster: ApiCluster, node: str, slices: list[UnclaimedSlice]) -> None:
    patch = {"status": {"unclaimed": [to_wire(each) for each in slices]}}
    await cluster.client.patch(kinds.NODE_ACCELERATORS, node, patch, namespace=NAMESPACE, subresource="status")
