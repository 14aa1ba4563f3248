"""Room on shared GPUs: a victim frees its MiB, and a whole GPU is free once its reservation pod is gone too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from apportion.apis import names
from apportion.apis.identities import NodeName
from apportion.apis.request import Request
from apportion.core import group_decision
from apportion.core.evictions import lost_places, nominations
from apportion.core.groups import Group
from apportion.core.refusals import Refusal
from apportion.core.statement import Statement
from tests.builders.pods import container, pod_request
from tests.core.evictions.worlds import World, evicted, queue, reserved, uid

N0 = NodeName("n0")
A100_MIB = 40960


def shared(gpus: int = 1, *, known: bool = True, sharers: int = 2, **ask: object) -> tuple[World, list[Request]]:
    """Queue a has shares of every GPU of a node, held by reservation pods; `known`: they say which GPU they have."""
    world = World({"n0": gpus}, [queue("a", 0, weight=0), queue("b", gpus)])
    for number in range(gpus * sharers):
        world.run(world.request(f"a{number}", "a", **(ask or {"fraction": "0.5"})))
    node = world.fleet.nodes[N0]
    held = [_reservation(world, number, uuid) for number, uuid in enumerate(node.gpus)]
    for pod in held:
        world.fleet.add_pod(pod, N0)
    if known:
        world.fleet.set_devices(N0, {pod.uid: (uuid,) for pod, uuid in zip(held, node.gpus, strict=True)})
    assert node.free(names.NVIDIA_GPU) == 0
    return world, held


def _reservation(world: World, number: int, gpu: str) -> Request:
    labels = {names.GPU_GROUP_LABEL: world.fleet.group_on(gpu)}
    space, other = world.fleet.reservation_namespace, names.DEFAULT_SCHEDULER
    return pod_request(f"r{number}", namespace=space, gpus=1, labels=labels, scheduler=other)


def decided(world: World, group: Group) -> Statement | Refusal:
    mark = world.fleet.checkpoint()
    outcome = group_decision.decide(world.fleet, group, world.policy, explained=False)
    world.fleet.rollback(mark)
    return outcome


@pytest.mark.parametrize("known", [True, False])
def test_g05_a_whole_gpu_is_free_once_its_last_sharer_and_the_reservation_pod_are_gone(*, known: bool) -> None:
    world, (held,) = shared(known=known)
    fleet, node = world.fleet, world.fleet.nodes[N0]
    group = world.wait(world.request("b0", "b", gpus=1))
    statement = world.plan(group)
    assert evicted(statement) == ["a0", "a1"]
    assert statement is not None
    (place,) = reserved(statement)
    assert set(place.reservation.after) == {uid("a0"), uid("a1"), held.uid}, "the reservation pod is waited for"
    for name in ("a0", "a1"):
        assert isinstance(decided(world, group), Refusal), "nobody is bound while pods share the GPU"
        assert lost_places.lost(fleet) == []
        fleet.take_away(uid(name))
    assert isinstance(decided(world, group), Refusal), "nor while the reservation pod holds it"
    assert lost_places.lost(fleet) == []
    assert fleet.reserves_for(group.key)
    assert node.free(names.NVIDIA_GPU) == 0
    stranger = Group.of(world.request("c0", "a", gpus=1))
    assert isinstance(decided(world, stranger), Refusal)
    fleet.remove_pod(held.uid)
    assert isinstance(decided(world, stranger), Refusal), "the place is kept"
    outcome = decided(world, group)
    assert isinstance(outcome, Statement)
    assert outcome.node == N0


@pytest.mark.parametrize("known", [True, False])
def test_g05_nobody_is_evicted_for_half_of_what_is_needed(*, known: bool) -> None:
    """Of two shared GPUs one is emptied, whoever shares the other stays."""
    world, held = shared(2, known=known)
    statement = world.plan(world.wait(world.request("b0", "b", gpus=1)))
    assert statement is not None
    gone = set(evicted(statement))
    gpus = [
        {fleet_share.owner for fleet_share in map(world.fleet.shares.get, gpu.shares) if fleet_share}
        for gpu in world.fleet.nodes[N0].gpus.values()
    ]
    assert {uid(name) for name in gone} in gpus
    (place,) = reserved(statement)
    assert len({pod.uid for pod in held} & set(place.reservation.after)) == 1


def test_g05_a_sharer_that_is_not_preemptible_keeps_its_gpu_and_the_reservation_pod() -> None:
    world = World({"n0": 1}, [queue("a", 1), queue("b", 1)])
    world.run(world.request("soft", "a", fraction="0.5"))
    world.run(world.request("hard", "a", fraction="0.5", priority=100))
    held = _reservation(world, 0, next(iter(world.fleet.nodes[N0].gpus)))
    world.fleet.add_pod(held, N0)
    assert world.plan(world.wait(world.request("b0", "b", gpus=1))) is None
    assert not world.fleet.releasing


def test_q06_a_victim_that_shares_a_gpu_frees_its_mib_alone() -> None:
    world, _ = shared(sharers=4, fraction="0.25")
    group = world.wait(world.request("b0", "b", memory=A100_MIB // 2))
    statement = world.plan(group)
    assert evicted(statement) == ["a2", "a3"], "the newest, and no more than needed"
    assert isinstance(decided(world, group), Refusal)
    world.fleet.take_away(uid("a3"))
    assert isinstance(decided(world, group), Refusal), "a quarter is not enough"
    world.fleet.take_away(uid("a2"))
    outcome = decided(world, group)
    assert isinstance(outcome, Statement)


def test_g11_a_share_takes_a_gpu_whose_sharers_are_all_leaving() -> None:
    world, (held,) = shared(sharers=1, fraction="0.5")
    world.fleet.set_releasing(uid("a0"), releasing=True)
    gpu = next(iter(world.fleet.nodes[N0].gpus))
    known = world.fleet.group_on(gpu)
    outcome = group_decision.decide(world.fleet, Group.of(world.request("b0", "b", fraction="0.5")), world.policy)
    assert isinstance(outcome, Statement)
    assert outcome.binds[0].groups == (known,)  # type: ignore[union-attr]
    assert held.uid in world.fleet.pod_nodes


@pytest.mark.parametrize("known", [True, False])
def test_q06_the_next_leader_keeps_the_place_while_the_reservation_pod_goes(*, known: bool) -> None:
    world, (held,) = shared(known=known)
    request = world.request("b0", "b", gpus=1)
    assert nominations.reserve_again(world.fleet, request, N0, world.policy) is None, "everybody runs"
    for name in ("a0", "a1"):
        world.fleet.set_releasing(uid(name), releasing=True)
    found = nominations.reserve_again(world.fleet, request, N0, world.policy)
    assert found is not None
    assert held.uid in found.after
    for name in ("a0", "a1"):
        world.fleet.take_away(uid(name))
    found = nominations.reserve_again(world.fleet, request, N0, world.policy)
    assert found is not None
    assert found.after == (held.uid,)


@pytest.mark.parametrize(("places", "victims"), [(2, []), (3, ["whole"])])
def test_g05_a_reservation_pod_that_has_still_to_come_needs_a_place_on_the_node(
    places: int, victims: list[str]
) -> None:
    world = World({"n0": 2}, [queue("a", 0, weight=0), queue("b", 2)])
    facts = world.fleet.nodes[N0].facts
    assert facts is not None
    world.run(world.request("share", "b", fraction="0.5", priority=100))
    world.run(world.request("whole", "a", gpus=1))
    world.fleet.set_node(replace(facts, allocatable={**facts.allocatable, "pods": places}))
    assert evicted(world.plan(world.wait(world.request("b0", "b", gpus=1)))) == victims


@pytest.mark.parametrize(("places", "victims"), [(2, []), (3, ["soft"])])
def test_g05_a_reservation_pod_that_goes_is_not_that_of_another_gpu(places: int, victims: list[str]) -> None:
    """It has not said which GPU it has, and the one of the other GPU has still to come."""
    world = World({"n0": 2}, [queue("a", 0, weight=0), queue("b", 2)])
    world.run(world.request("soft", "a", fraction="0.9"))
    world.run(world.request("hard", "b", fraction="0.9", priority=100))
    world.fleet.add_pod(_reservation(world, 0, world.fleet.shares_of(uid("soft"))[0].gpu), N0)
    facts = world.fleet.nodes[N0].facts
    assert facts is not None
    world.fleet.set_node(replace(facts, allocatable={**facts.allocatable, "pods": places}))
    assert evicted(world.plan(world.wait(world.request("b0", "b", gpus=1)))) == victims


@pytest.mark.parametrize("known", [True, False])
def test_g05_the_same_is_found_for_a_pod_whose_rules_look_at_more_than_its_node(*, known: bool) -> None:
    world, (held,) = shared(known=known)
    ports = container(gpus=1, ports=[{"containerPort": 80, "hostPort": 80}])
    statement = world.plan(world.wait(world.request("b0", "b", containers=[ports])))
    assert evicted(statement) == ["a0", "a1"]
    assert statement is not None
    assert held.uid in reserved(statement)[0].reservation.after
