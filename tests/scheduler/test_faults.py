"""What the scheduler does when things go wrong: crashes, lost answers, stale claims, two that lead."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from apportion.apis import kinds, names
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.placements import SlicePlacement
from apportion.apis.request import parse_pod
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.events import Recorder
from apportion.cluster.lease import Election
from apportion.cluster.transport import HttpRequest, Response
from apportion.core.explanations import messages
from apportion.core.groups import Group
from apportion.core.operations import Bind, ClaimSlice
from apportion.core.reasons import Code
from apportion.core.statement import Statement
from apportion.scheduler import commits
from apportion.scheduler.main import Leadership
from apportion.scheduler.pod_ends import PodEnds
from apportion.scheduler.settings import Settings
from apportion.view.view import View
from tests.builders import claims, pods
from tests.scheduler.cluster import NAMESPACE, ApiCluster, background, scheduling, until

Onwards = Callable[[], Awaitable[Response]]


async def claim_for(
    cluster: ApiCluster, pod: str, uid: str, node: str, *, start: int = 0, gpu: int = 0
) -> AllocationClaim:
    """What a leader left that died between claim and binding (and before it wrote the state)."""
    body = claims.claim(pods.pod(pod, uid=uid), node=node, gpu=cluster.gpus[node][gpu], start=start)
    return await cluster.client.create(kinds.ALLOCATION_CLAIMS, body, namespace=NAMESPACE, into=AllocationClaim)


async def no_claims(cluster: ApiCluster, within: float = 40) -> None:
    async def none() -> bool:
        return not await cluster.claims()

    await until(none, within=within)


async def test_s06_claims_of_a_leader_that_died_are_adopted(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    await cluster.node("n2")
    uid = await cluster.pod("a", slices={"1g.5gb": 1})
    left = await claim_for(cluster, "a", uid, "n2", start=3, gpu=1)
    async with scheduling(cluster):
        assert await cluster.bound("a") == {"a": "n2"}
    (claim,) = await cluster.claims()
    assert claim.metadata.uid == left.metadata.uid
    assert claim.state == "created"


async def test_s06_half_of_the_claims_is_completed(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    await cluster.node("n2")
    uid = await cluster.pod("a", slices={"1g.5gb": 2})
    left = await claim_for(cluster, "a", uid, "n2", start=3, gpu=1)
    async with scheduling(cluster):
        assert await cluster.bound("a") == {"a": "n2"}
    first, second = await cluster.claims()
    assert first.metadata.uid == left.metadata.uid
    assert second.spec.nodename == "n2"
    await cluster.no_overlap()


async def test_s06_claims_that_cannot_be_used_are_given_up_first(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    await cluster.node("n2")
    uid = await cluster.pod("a", slices={"1g.5gb": 1})
    left = await claim_for(cluster, "a", uid, "n2")
    await cluster.client.patch(kinds.NODES, "n2", {"spec": {"unschedulable": True}})
    async with scheduling(cluster):
        assert await cluster.bound("a") == {"a": "n1"}
    (claim,) = await cluster.claims()
    assert claim.metadata.uid != left.metadata.uid


async def test_s06_a_claim_on_a_place_that_another_one_holds_is_not_used(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    first = await cluster.pod("a", slices={"1g.5gb": 1})
    async with scheduling(cluster):
        await cluster.bound("a")
    (held,) = await cluster.claims()
    gpu = cluster.gpus["n1"].index(held.spec.gpu_uuid)
    uid = await cluster.pod("b", slices={"1g.5gb": 1})
    await claim_for(cluster, "b", uid, "n1", start=held.spec.mig_placement.start, gpu=gpu)
    async with scheduling(cluster):
        await cluster.bound("b")
    await cluster.no_overlap()
    assert {claim.spec.pod_ref.uid for claim in await cluster.claims()} == {first, uid}


async def test_s06_claims_of_pods_that_vanished_before_binding_are_removed(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    await cluster.pod("ghost")
    await claim_for(cluster, "ghost", "00000000-0000-0000-0000-000000000001", "n1")
    async with scheduling(cluster):
        await no_claims(cluster)


async def test_s06_a_claim_that_another_leader_wrote_for_another_node_is_not_counted_on(
    each_cluster: ApiCluster,
) -> None:
    """Else the pod would be bound to our node, without a claim there."""
    cluster = each_cluster
    await cluster.node("n1")
    await cluster.node("n2")
    uid = await cluster.pod("a", slices={"1g.5gb": 1})
    theirs = await claim_for(cluster, "a", uid, "n2")
    gpu = cluster.gpus["n1"][0]
    request = parse_pod(await cluster.get("a"))
    claim = ClaimSlice(theirs.name, request, "n1", SlicePlacement(gpu, "1g.5gb", start=0, size=1), ("main",))
    bind = Bind(request, "n1", after=(claim.confirmed_by,))
    committer = commits.Committer(
        cluster.client, namespace=NAMESPACE, holds=lambda: True, ready=lambda _: True, pod_ends=PodEnds(View())
    )
    result = await committer.commit(Statement(Group.of(request), (claim, bind)))
    assert (result.pods, result.existing) == ({uid: commits.BindResult.FAILED}, set())
    async with scheduling(cluster):
        assert await cluster.bound("a") == {"a": "n2"}
    assert [claim.spec.nodename for claim in await cluster.claims()] == ["n2"]


class Faltering(Election):
    """Its renewals can be late: for a moment it does not know whether it still leads."""

    late = False

    def holds(self) -> bool:
        return not self.late and super().holds()


async def test_s06_a_lease_that_is_renewed_late_leaves_no_claim_behind(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    election = Faltering(cluster.client, name="late", namespace=NAMESPACE, identity="late")
    leadership = Leadership(cluster.client, election, Settings(), Recorder(cluster.client, "late"))
    async with background(election.run(leadership.lead)):
        await cluster.pod("a", slices={"1g.5gb": 1})
        await cluster.bound("a")
        election.late = True
        await claim_for(cluster, "ghost", "00000000-0000-0000-0000-000000000001", "n1", gpu=1)
        await asyncio.sleep(0.5)  # long enough to be looked at, too short to end the leadership
        election.late = False
        await cluster.delete("a")
        await no_claims(cluster)


async def test_s06_without_an_agent_a_claim_stays_and_its_place_is_not_given_away(
    each_cluster: ApiCluster,
) -> None:
    cluster = each_cluster
    await cluster.node("n1", gpus=1)
    async with scheduling(cluster):
        await cluster.pod("a", slices={"7g.40gb": 1})
        await cluster.bound("a")
        cluster.agents.clear()
        await cluster.delete("a")
        await cluster.pod("b", slices={"1g.5gb": 1})
        await cluster.waits("b")
        (claim,) = await cluster.claims()
        assert names.SLICE_FINALIZER in claim.metadata.finalizers


async def test_s06_when_its_node_is_gone_the_leader_takes_the_finalizer_off(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    async with scheduling(cluster):
        await cluster.pod("a", slices={"1g.5gb": 1})
        await cluster.bound("a")
        cluster.agents.clear()
        await cluster.delete("a")
        await cluster.client.delete(kinds.NODES, "n1")
        await no_claims(cluster)


async def test_a_node_that_is_out_of_service_gives_its_slices_back_with_its_pods(cluster: ApiCluster) -> None:
    await cluster.node("n1")
    cluster.agents.clear()
    async with scheduling(cluster):
        await cluster.pod("a", slices={"1g.5gb": 1})
        await cluster.bound("a")
        taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute", "value": "nodeshutdown"}
        await cluster.client.patch(kinds.NODES, "n1", {"spec": {"taints": [taint]}})
        await asyncio.sleep(0.2)
        assert len(await cluster.claims()) == 1, "its pod is still there"
        await cluster.delete("a")
        await no_claims(cluster)


async def test_a_binding_that_fails_is_undone_and_tried_again(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1)
    failures = 2

    async def refuse(request: HttpRequest, onwards: Onwards) -> Response:
        nonlocal failures
        if request.path.endswith("/binding") and failures:
            failures -= 1
            return Response(500, {}, b"")
        return await onwards()

    wire = cluster.wire(refuse)
    await cluster.pod("a", slices={"7g.40gb": 1})
    async with scheduling(cluster, wire):
        await cluster.bound("a")
    assert failures == 0
    (claim,) = await cluster.claims()
    assert claim.spec.profile == "7g.40gb"


async def test_a_binding_that_fails_for_good_gives_its_place_to_others(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1)

    async def refuse(request: HttpRequest, onwards: Onwards) -> Response:
        if request.path.endswith("/a/binding"):
            return Response(403, {}, b"")
        return await onwards()

    wire = cluster.wire(refuse)
    await cluster.pod("a", slices={"7g.40gb": 1}, priority=1000)
    async with scheduling(cluster, wire):
        assert messages.attempt_in(await cluster.waits("a")) is Code.BINDING_FAILED
        await cluster.pod("b", slices={"7g.40gb": 1}, priority=2000)
        await cluster.bound("b", within=15)


async def test_an_answer_that_is_lost_is_looked_up(cluster: ApiCluster) -> None:
    await cluster.node("n1")
    lost: list[str] = []

    async def lose(request: HttpRequest, onwards: Onwards) -> Response:
        response = await onwards()
        if request.method == "POST" and request.path not in lost and "leases" not in request.path:
            lost.append(request.path)
            raise errors.Unreachable("the answer is lost")
        return response

    wire = cluster.wire(lose)
    async with scheduling(cluster, wire):
        for name in "abc":
            await cluster.pod(name, slices={"1g.5gb": 1})
        await cluster.bound("a", "b", "c")
    assert len(lost) >= 4
    assert len(await cluster.claims()) == 3
    await cluster.no_overlap()


async def test_a_pod_that_vanishes_between_claim_and_binding_leaves_nothing(cluster: ApiCluster) -> None:
    await cluster.node("n1")

    async def vanish(request: HttpRequest, onwards: Onwards) -> Response:
        if request.path.endswith("/binding"):
            await cluster.delete("ghost")
        return await onwards()

    wire = cluster.wire(vanish)
    async with scheduling(cluster, wire):
        await cluster.pod("ghost", slices={"1g.5gb": 1})

        async def gone() -> bool:
            try:
                await cluster.get("ghost")
            except errors.NotFound:
                return True
            return False

        await until(gone)
        await no_claims(cluster)
        wire.fault = None
        await cluster.pod("big", slices={"7g.40gb": 2})
        await cluster.bound("big")


async def test_a_leader_whose_lease_ran_out_writes_nothing_more(cluster: ApiCluster) -> None:
    await cluster.node("n1")

    async def never(request: HttpRequest, onwards: Onwards) -> Response:
        raise AssertionError(f"{request.method} {request.path} was sent without a lease")

    wire = cluster.wire(never)
    committer = commits.Committer(
        Client(wire), namespace=NAMESPACE, holds=lambda: False, ready=lambda _: True, pod_ends=PodEnds(View())
    )
    uid = await cluster.pod("a", slices={"1g.5gb": 1})
    claim = await claim_for(cluster, "a", uid, "n1")
    with pytest.raises(commits.LeaseLost):
        await committer.release([claim])


async def test_of_two_schedulers_one_works_and_the_other_takes_over(cluster: ApiCluster) -> None:
    await cluster.node("n1")
    wire = cluster.wire()
    async with scheduling(cluster, wire, identity="first"):
        await cluster.pod("a", slices={"1g.5gb": 1})
        await cluster.bound("a")
        async with scheduling(cluster, identity="second"):
            await cluster.pod("b", slices={"1g.5gb": 1})
            await cluster.bound("b")

            async def cut_off(request: HttpRequest, onwards: Onwards) -> Response:
                raise errors.Unreachable("the network is gone")

            wire.fault = cut_off
            await cluster.end_lease()
            await cluster.pod("c", slices={"1g.5gb": 1})
            await cluster.bound("c")
    await cluster.no_overlap()
    lease = await cluster.client.get(kinds.LEASES, names.SCHEDULER_LEASE, namespace=NAMESPACE)
    assert lease["spec"]["leaseTransitions"] >= 2


@pytest.mark.parametrize("seed", range(3))
async def test_killed_at_random_moments_it_finishes_its_work(cluster: ApiCluster, seed: int) -> None:
    draw = random.Random(seed)
    await cluster.node("n1")
    await cluster.node("n2")
    pods = [f"p{number:02}" for number in range(14)]
    for name in pods:
        await cluster.pod(name, slices={draw.choice(["1g.5gb", "2g.10gb"]): 1})
    for _ in range(10):
        wire = cluster.wire(_dying_after(draw.randrange(60)))
        async with scheduling(cluster, wire):
            await asyncio.sleep(draw.uniform(0.05, 0.5))
        await cluster.end_lease()
    async with scheduling(cluster):
        await cluster.bound(*pods)

        async def settled() -> bool:
            return len(await cluster.claims()) == len(pods)

        await until(settled)
    await cluster.no_overlap()
    for claim in await cluster.claims():
        pod = await cluster.get(claim.spec.pod_ref.name)
        assert (pod.metadata.uid, pod.spec.node_name) == (claim.spec.pod_ref.uid, claim.spec.nodename)


def _dying_after(requests: int) -> Callable[[HttpRequest, Onwards], Awaitable[Response]]:
    """A process that is killed: after so many requests nothing leaves it any more, in mid-flight or not."""
    left = requests

    async def die(request: HttpRequest, onwards: Onwards) -> Response:
        nonlocal left
        left -= 1
        if left < 0:
            await asyncio.Event().wait()
        return await onwards()

    return die
