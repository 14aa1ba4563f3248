"""Each kind of operation is written in its own way, can be written again, and can be looked up."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

import pytest

from apportion.apis import names
from apportion.apis.errors import LedgerError
from apportion.apis.identities import PodUID
from apportion.apis.placements import SlicePlacement
from apportion.apis.pods import Pod
from apportion.apis.request import Request, parse_pod
from apportion.core.fleet_facts import Reservation
from apportion.core.groups import Group
from apportion.core.operations import (
    Bind,
    ClaimSlice,
    Evict,
    ObjectKind,
    ObjectRef,
    Operation,
    Reserve,
    Unreserve,
)
from apportion.core.statement import Statement
from apportion.scheduler.commits import BindResult, Committer
from apportion.scheduler.place_notes import PlaceNotes
from apportion.scheduler.pod_ends import PodEnds
from apportion.scheduler.writers import FLEET_ONLY, NominationWriter, writers
from apportion.view.view import View
from tests.scheduler.cluster import NAMESPACE, ApiCluster


def committer(cluster: ApiCluster, pod_ends: PodEnds | None = None, **options: Any) -> Committer:
    ends = pod_ends or PodEnds(View())
    return Committer(
        cluster.client, namespace=NAMESPACE, holds=lambda: True, ready=lambda _: True, pod_ends=ends, **options
    )


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


async def test_each_kind_of_operation_has_a_writer_or_is_declared_to_have_none(each_cluster: ApiCluster) -> None:
    client = each_cluster.client
    kinds = [
        *writers(client, NAMESPACE, NominationWriter(client), PlaceNotes(client, NAMESPACE)),
        *FLEET_ONLY,
    ]
    assert sorted(kinds, key=str) == sorted(get_args(Operation), key=str)


async def test_a_statement_that_cannot_be_written_raises_before_anything_is_written(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    await cluster.pod("a", limits={"cpu": "1"})
    request = await request_of(cluster, "a")
    elsewhere = Bind(request, "n1", after=(ObjectRef(ObjectKind.CLAIM, "of-another-statement"),))
    made = committer(cluster)
    with pytest.raises(LedgerError, match="does not write claim of-another-statement"):
        await made.commit(Statement(Group.of(request), (elsewhere,)))
    assert not (await cluster.get("a")).spec.node_name


class Eviction:
    """A pod on n1 that is evicted for another one, as a view shows it."""

    def __init__(self, cluster: ApiCluster) -> None:
        self.cluster = cluster
        self.view = View()
        self.ends = PodEnds(self.view)

    async def begin(self) -> None:
        await self.cluster.node("n1")
        await self.cluster.pod("victim", limits={"cpu": "1"}, node="n1")
        await self.cluster.pod("new", limits={"cpu": "1"})
        self.victim, self.new = await self.cluster.get("victim"), await request_of(self.cluster, "new")
        self.show(None, self.victim)

    def show(self, old: Pod | None, new: Pod | None) -> None:
        self.view.pods.changed(old, new)
        self.ends.changed(old, new)

    def statement(self, *, with_evict: bool = True) -> Statement:
        evict = Evict(parse_pod(self.victim), "n1")
        bind = Bind(self.new, "n1", after=(evict.confirmed_by,))
        return Statement(Group.of(self.new), (evict, bind) if with_evict else (bind,))

    async def node_of_new(self) -> str:
        return (await self.cluster.get("new")).spec.node_name


@pytest.mark.parametrize("with_evict", [True, False], ids=["same statement", "another statement"])
async def test_a_bind_after_the_end_of_a_pod_waits_until_the_view_shows_that_end(
    each_cluster: ApiCluster, *, with_evict: bool
) -> None:
    eviction = Eviction(each_cluster)
    await eviction.begin()
    made = committer(each_cluster, eviction.ends, concurrent=1)
    commit = asyncio.create_task(made.commit(eviction.statement(with_evict=with_evict)))
    await asyncio.sleep(0.3)
    assert not commit.done()
    assert not await eviction.node_of_new(), "the eviction was accepted, and the pod is still shown"
    await each_cluster.pod("other", limits={"cpu": "1"})
    other = await request_of(each_cluster, "other")
    assert (await made.commit(Statement(Group.of(other), (Bind(other, "n1"),)))).bound, "who waits holds up nobody"
    eviction.show(eviction.victim, None)
    assert (await commit).bound
    assert await eviction.node_of_new() == "n1"


async def test_a_pod_that_does_not_end_in_time_fails_the_statement(each_cluster: ApiCluster) -> None:
    eviction = Eviction(each_cluster)
    await eviction.begin()
    made = committer(each_cluster, eviction.ends, pod_end_seconds=0.2)
    result = await made.commit(eviction.statement(with_evict=False))
    assert result.pods == {PodUID(eviction.new.uid): BindResult.FAILED}
    assert "has not terminated within" in result.reason
    assert not result.existing
    assert not await eviction.node_of_new()


async def test_a_leader_that_ends_while_it_waits_leaves_what_the_next_one_can_write_again(
    each_cluster: ApiCluster,
) -> None:
    eviction = Eviction(each_cluster)
    await eviction.begin()
    first = asyncio.create_task(committer(each_cluster, eviction.ends).commit(eviction.statement()))
    await asyncio.sleep(0.3)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert not await eviction.node_of_new()
    eviction.show(eviction.victim, None)
    assert (await committer(each_cluster, eviction.ends).commit(eviction.statement())).bound
    assert await eviction.node_of_new() == "n1"
