"""Each kind of operation is written in its own way, can be written again, and can be looked up."""

from __future__ import annotations

from apportion.apis import names
from apportion.apis.placements import SlicePlacement
from apportion.apis.request import Request, parse_pod
from apportion.core.fleet_facts import Reservation
from apportion.core.groups import Group
from apportion.core.operations import Bind, ClaimSlice, Evict, Operation, Reserve, Unreserve
from apportion.core.statement import Statement
from apportion.scheduler.commits import BindResult, Committer
from tests.scheduler.cluster import NAMESPACE, ApiCluster


def committer(cluster: ApiCluster) -> Committer:
    return Committer(cluster.client, namespace=NAMESPACE, holds=lambda: True)


async def request_of(cluster: ApiCluster, name: str) -> Request:
    return parse_pod(await cluster.get(name))


async def written(cluster: ApiCluster, *operations: Operation) -> None:
    """Write them, twice; each can be looked up afterwards and not before."""
    made = committer(cluster)
    looked_up = [each for each in operations if each.confirmed_by is not None]
    assert not [each for each in looked_up if await made.exists(each)]
    owner = next(each.request for each in operations if not isinstance(each, Unreserve))
    for _ in range(2):
        await made.commit(Statement(Group.of(owner), operations))
    assert [each for each in looked_up if not await made.exists(each)] == []


async def test_claims_and_bindings(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    await cluster.pod("a", slices={"1g.5gb": 1})
    request = await request_of(cluster, "a")
    placement = SlicePlacement(cluster.gpus["n1"][0], "1g.5gb", 0, 1)
    claim = ClaimSlice(f"{request.uid}-main-0", request, "n1", placement, ("main",))
    await written(cluster, claim, Bind(request, "n1", after=(claim.confirmed_by,)))
    (found,) = await cluster.claims()
    assert found.spec.nodename == "n1"
    assert (await cluster.get("a")).spec.node_name == "n1"


async def test_reservations_are_the_pods_nominated_node(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    await cluster.pod("a", limits={"cpu": "1"})
    request = await request_of(cluster, "a")
    room = Reservation("room", "n1", request.resources, owner=request.uid)
    await written(cluster, Unreserve(room), Reserve(request, room))
    assert (await cluster.get("a")).status.nominated_node_name == "n1"


async def test_evictions_go_through_the_eviction_api(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    await cluster.pod("victim", limits={"cpu": "1"}, node="n1")
    await written(cluster, Evict(await request_of(cluster, "victim"), "n1", "makes room"))


async def test_of_a_group_each_pod_has_its_own_outcome(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    for name in ("there", "gone"):
        await cluster.pod(name, limits={names.NVIDIA_GPU: "1"})
    there, gone = await request_of(cluster, "there"), await request_of(cluster, "gone")
    await cluster.delete("gone")
    statement = Statement(Group.of(there, gone), (Bind(there, "n1"), Bind(gone, "n1")))
    result = await committer(cluster).commit(statement)
    assert result.pods == {there.uid: BindResult.BOUND, gone.uid: BindResult.GONE}
    assert result.existing == {statement.binds[0].confirmed_by}
    assert not result.bound
