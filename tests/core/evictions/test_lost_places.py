"""Reserved places that cannot be used any more are found, and their groups are planned for again."""

from __future__ import annotations

from apportion.apis.identities import NodeName
from apportion.core import group_decision
from apportion.core.evictions import lost_places
from apportion.core.fleet import GpuFacts
from apportion.core.statement import Statement
from tests.builders.accelerators import A100, model
from tests.core.evictions.worlds import World, evicted, queue, uid


def planned(**ask: object) -> tuple[World, Statement]:
    """Queue b has reclaimed a place of queue a, and the victim is not gone yet."""
    mig = "slices" in ask
    world = World({"n0": 1, "n1": 1}, [queue("a", 0, weight=0), queue("b", 2)], mig=mig)
    for number in range(2):
        ask_whole = {"slices": {"7g.40gb": 1}} if mig else {"gpus": 1}
        world.run(world.request(f"a{number}", "a", **ask_whole))
    group = world.wait(world.request("b0", "b", **ask))
    statement = world.plan(group)
    assert statement is not None
    assert evicted(statement) == ["a1"]
    return world, statement


def test_q06_a_place_whose_victim_still_terminates_is_not_lost() -> None:
    for ask in ({"gpus": 1}, {"fraction": "0.5"}, {"slices": {"3g.20gb": 1}}):
        world, _ = planned(**ask)
        before = world.fleet.record()
        assert lost_places.lost(world.fleet) == [], ask
        assert world.fleet.record() == before


def test_q06_a_place_on_a_node_that_is_gone_is_lost_and_planned_anew() -> None:
    world, statement = planned(gpus=1)
    world.fleet.remove_node(NodeName("n1"))
    (place,) = lost_places.lost(world.fleet)
    assert place.owner == statement.group.key
    world.fleet.release_reservation(place.key)
    assert evicted(world.plan(statement.group)) == ["a0"]


def test_q06_a_place_that_somebody_else_took_is_lost() -> None:
    for ask, taken in (
        ({"gpus": 1}, {"gpus": 1}),
        ({"fraction": "0.5"}, {"gpus": 1}),
        ({"gpus": 1}, {"fraction": "0.5"}),
    ):
        world, _ = planned(**ask)
        intruder = world.request("intruder", "a", **taken)
        world.fleet.remove_pod(uid("a1"))
        if intruder.share is not None:
            gpu = next(iter(world.fleet.nodes[NodeName("n1")].gpus))
            world.fleet.add_share("intruder/0", gpu, intruder.share.mib_on(40960), intruder.uid)
        world.fleet.add_pod(intruder, NodeName("n1"))
        assert len(lost_places.lost(world.fleet)) == 1, (ask, taken)


def test_q06_a_place_on_a_gpu_that_failed_is_lost() -> None:
    for ask in ({"gpus": 1}, {"fraction": "0.5"}, {"slices": {"3g.20gb": 1}}):
        world, _ = planned(**ask)
        node = world.fleet.nodes[NodeName("n1")]
        facts = [GpuFacts(uuid, model(A100), "slices" in ask, healthy=False) for uuid in node.gpus]
        world.fleet.set_gpus(node.name, facts, ready=True)
        assert len(lost_places.lost(world.fleet)) == 1, ask


def test_q06_the_place_is_used_once_the_victim_is_gone() -> None:
    world, statement = planned(gpus=1)
    world.fleet.remove_pod(uid("a1"))
    outcome = group_decision.decide(world.fleet, statement.group, world.policy)
    assert isinstance(outcome, Statement)
    assert outcome.node == "n1"
    assert not world.fleet.reserves_for(statement.group.key)
