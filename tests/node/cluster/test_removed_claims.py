"""S06: a claim that somebody removes while its pod runs is reported by the agent, and used again once it is back."""

from __future__ import annotations

from apportion.apis import kinds, names
from apportion.apis.custom_resources import claims
from apportion.apis.custom_resources.accelerators import UnclaimedSlice
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.meta import ObjectMeta
from tests.node.agent_node import AgentNode


async def remove(node: AgentNode, claim: AllocationClaim) -> None:
    patch = {"metadata": {"finalizers": []}}
    await node.client.patch(kinds.ALLOCATION_CLAIMS, claim.name, patch, namespace=names.DAS_NAMESPACE)
    await node.client.delete(kinds.ALLOCATION_CLAIMS, claim.name, namespace=names.DAS_NAMESPACE)


async def create_again(node: AgentNode, claim: AllocationClaim) -> None:
    """As the scheduler does."""
    body = AllocationClaim(
        metadata=ObjectMeta(name=claim.name, finalizers=[names.SLICE_FINALIZER]),
        spec=claim.spec,
    )
    await node.client.create(kinds.ALLOCATION_CLAIMS, body, namespace=names.DAS_NAMESPACE)


async def unclaimed(node: AgentNode) -> list[UnclaimedSlice]:
    return (await node.accelerator()).status.unclaimed


async def test_s06_the_slice_of_a_removed_claim_is_reported_until_the_claim_is_back(node: AgentNode) -> None:
    pod = await node.scheduled("a", "2g.10gb", 2)
    environment = await node.run(pod)
    (before,) = await node.claims()
    await remove(node, before)
    (reported,) = await node.eventually(lambda: unclaimed(node), "the slice is reported")
    spec, place = before.spec, before.spec.mig_placement
    assert (reported.claim, reported.pod_uid) == (before.name, before.pod_uid)
    assert (reported.profile, reported.gpu_uuid) == (spec.profile, spec.gpu_uuid)
    assert (reported.start, reported.size) == (place.start, place.size)
    assert await node.slices() == [before.status.mig_uuid]

    await create_again(node, before)

    async def used() -> bool:
        (claim,) = await node.claims()
        return (claim.state, claim.status.mig_uuid) == (claims.IN_USE, before.status.mig_uuid)

    await node.eventually(used, "the claim is in use again")

    async def nothing() -> bool:
        return not await unclaimed(node)

    await node.eventually(nothing, "nothing is reported any longer")
    assert await node.start(pod) == environment
    await node.delete(pod)
    await node.eventually(node.clean, "it leaves nothing behind")


async def test_s06_after_a_restart_the_slice_is_still_reported(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    await node.run(pod)
    (before,) = await node.claims()
    await node.stop_agent()
    await remove(node, before)
    await node.start_agent()
    assert await node.eventually(lambda: unclaimed(node), "the slice is reported")
    await node.delete(pod)
    await node.eventually(node.clean, "it leaves nothing behind")


async def test_s06_a_claim_for_another_place_is_not_taken_for_the_removed_one(node: AgentNode) -> None:
    pod = await node.scheduled("a", start=0)
    await node.run(pod)
    (before,) = await node.claims()
    await remove(node, before)
    before.spec.mig_placement.start = 4
    await create_again(node, before)
    await node.eventually(lambda: node.agent is not None and node.agent._store.get(before.name), "the agent knows it")
    await node.restart_agent()
    (claim,) = await node.claims()
    assert claim.state == claims.CREATED
