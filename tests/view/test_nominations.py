"""The node that is reserved for a pod is in its status: that confirms the reservation, and the next leader reads it."""

from __future__ import annotations

from apportion.apis import kinds
from apportion.apis.identities import NodeName, PodUID
from apportion.core.fleet_facts import Reservation
from apportion.core.groups import Group
from apportion.core.operations import Reserve
from apportion.core.statement import Statement
from tests.scheduler.cluster import embedded
from tests.view.followed import Followed, followed, read_afresh


async def nominate(made: Followed, name: str, node: str) -> None:
    status = {"status": {"nominatedNodeName": node}}
    await made.client.patch(kinds.PODS, name, status, namespace="default", subresource="status")


async def reserved(made: Followed, name: str, uid: PodUID, node: str) -> Reserve:
    request = await made.read(name)
    operation = Reserve(request, Reservation(f"{request.group_key}/{uid}", NodeName(node), {}, owner=request.group_key))
    statement = Statement(Group.of(request), (operation,))
    statement.apply(made.view.fleet)
    made.view.assumptions.decided(statement)
    made.view.assumptions.written(statement)
    return operation


async def test_q06_a_nomination_confirms_the_reservation_on_that_node_alone() -> None:
    async with embedded() as cluster, followed(cluster) as made:
        await cluster.node("n1")
        uid = await made.pod("a")
        operation = await reserved(made, "a", uid, "n1")
        await nominate(made, "a", "n2")
        await made.until(lambda: made.view.pods.nominated.get(uid) == "n2")
        assert operation.confirmed_by in made.view.assumptions, "another node is nominated"
        await nominate(made, "a", "n1")
        await made.until(lambda: made.view.pods.nominated.get(uid) == "n1")
        assert operation.confirmed_by not in made.view.assumptions
        assert operation.reservation.key in made.view.fleet.reservations, "it lasts"


async def test_q06_nominations_are_known_as_long_as_the_pod_waits() -> None:
    async with embedded() as cluster, followed(cluster) as made:
        await cluster.node("n1")
        uids = {name: await made.pod(name) for name in "abc"}
        for name in uids:
            await nominate(made, name, "n1")
        nominated = made.view.pods.nominated
        await made.until(lambda: set(nominated) == set(uids.values()))
        assert dict((await read_afresh(cluster)).pods.nominated) == dict(nominated)
        await made.client.bind("default", "a", uids["a"], "n1")
        await made.client.delete(kinds.PODS, "b", namespace="default", grace=0)
        await nominate(made, "c", "")
        await made.until(lambda: not nominated)
