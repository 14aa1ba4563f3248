"""The fleet: facts in any order, and trials that leave no trace."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.apis import names
from apportion.apis.errors import LedgerError
from apportion.apis.placements import SlicePlacement
from apportion.core import group_decision
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import GpuFacts
from apportion.core.groups import Group
from apportion.core.policies import Policy
from tests.builders.accelerators import A100, CATALOG, T4, model
from tests.builders.fleets import add_node, fleet_of, mig_fleet, node_facts
from tests.builders.pods import pod_request


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 25))
def test_rollback_restores_the_state_to_the_byte(seed: int, steps: int) -> None:
    dice = random.Random(seed)
    fleet = fleet_of(
        *((node_facts(f"node-{n}"), [(A100, True)] * (n % 2) + [(T4, False)] * dice.randint(0, 2)) for n in range(4))
    )
    for _ in range(10):
        _change(dice, fleet)
    before = fleet.record()
    mark = fleet.checkpoint()
    for _ in range(steps):
        _change(dice, fleet)
    inner = fleet.checkpoint()
    middle = fleet.record()
    for _ in range(3):
        _change(dice, fleet)
    fleet.rollback(inner)
    assert fleet.record() == middle
    fleet.rollback(mark)
    assert fleet.record() == before


def _change(dice: random.Random, fleet: Fleet) -> None:
    name = f"node-{dice.randrange(5)}"
    uid = f"uid-default-pod-{dice.randrange(8)}"
    match dice.randrange(10):
        case 0:
            add_node(
                fleet,
                node_facts(name, cpu=dice.choice((1000, 64_000))),
                [(dice.choice((A100, T4)), dice.random() < 0.5)],
            )
        case 1:
            fleet.remove_node(name)
        case 2:
            pieces = [GpuFacts(f"{name}-gpu{n}", model(T4), mig=False) for n in range(dice.randint(0, 3))]
            fleet.set_gpus(name, pieces, ready=dice.random() < 0.7)
        case 3 | 4:
            wants = dice.choice(({"gpus": 1}, {"gpus": 2}, {"cpu": "1"}, {"fraction": "0.5"}))
            fleet.add_pod(pod_request(f"pod-{dice.randrange(8)}", **wants), name)
        case 5:
            fleet.remove_pod(uid)
        case 6:
            fleet.add_slice(
                f"claim-{dice.randrange(6)}", SlicePlacement(f"{name}-gpu0", "1g.5gb", dice.randrange(7), 1), uid
            )
        case 7:
            fleet.remove_slice(f"claim-{dice.randrange(6)}")
        case 8:
            fleet.add_share(f"share-{dice.randrange(6)}", f"{name}-gpu{dice.randrange(3)}", 1000, uid)
        case _:
            fleet.remove_share(f"share-{dice.randrange(6)}")


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_facts_may_come_in_any_order(seed: int) -> None:
    facts = [
        lambda fleet: fleet.set_node(node_facts("n")),
        lambda fleet: fleet.set_gpus("n", [GpuFacts("gpu", model(A100), mig=True)], ready=True),
        lambda fleet: fleet.add_slice("one", SlicePlacement("gpu", "3g.20gb", 0, 4), "a"),
        lambda fleet: fleet.add_slice("two", SlicePlacement("gpu", "1g.5gb", 6, 1), "b"),
        lambda fleet: fleet.add_pod(pod_request("p", cpu="2"), "n"),
    ]
    first = Fleet(CATALOG)
    for fact in facts:
        fact(first)
    random.Random(seed).shuffle(facts)
    second = Fleet(CATALOG)
    for fact in facts:
        fact(second)
    assert first.record() == second.record()


def test_adding_the_same_twice_changes_nothing() -> None:
    fleet = mig_fleet(1)
    request = pod_request("p", cpu="1")
    fleet.add_pod(request, "node-0")
    fleet.add_slice("claim", SlicePlacement("node-0-gpu0", "1g.5gb", 6, 1), request.uid)
    once = fleet.record()
    fleet.add_pod(request, "node-0")
    fleet.add_slice("claim", SlicePlacement("node-0-gpu0", "1g.5gb", 6, 1), request.uid)
    assert fleet.record() == once


def test_a_mark_cannot_be_used_twice() -> None:
    fleet = mig_fleet(1)
    mark = fleet.checkpoint()
    fleet.rollback(mark)
    with pytest.raises(LedgerError, match="rolled back before"):
        fleet.rollback(mark)


def test_a_plan_can_be_undone_after_other_changes() -> None:
    fleet = mig_fleet(2)
    before = fleet.record()
    first = group_decision.decide(fleet, Group.of(pod_request("a", slices={"1g.5gb": 2})), Policy())
    second = group_decision.decide(fleet, Group.of(pod_request("b", slices={"3g.20gb": 1})), Policy())
    assert isinstance(first, group_decision.Statement)
    assert isinstance(second, group_decision.Statement)
    first.undo(fleet)
    second.undo(fleet)
    assert fleet.record() == before


def test_g05_a_reservation_pod_holds_its_device_once() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)] * 2))
    assert isinstance(
        group_decision.decide(fleet, Group.of(pod_request("sharer", fraction="0.5")), Policy()),
        group_decision.Statement,
    )
    assert fleet.nodes["n"].free(names.NVIDIA_GPU) == 1, "the reservation that will come is counted already"
    fleet.add_pod(pod_request("reservation", namespace=names.RESERVATION_NAMESPACE, gpus=1), "n")
    assert fleet.nodes["n"].free(names.NVIDIA_GPU) == 1
    assert isinstance(
        group_decision.decide(fleet, Group.of(pod_request("whole", gpus=1)), Policy()), group_decision.Statement
    )


def test_g05_reservation_pods_are_those_in_the_namespace_of_the_installation() -> None:
    fleet = Fleet(CATALOG, reservation_namespace="reservations")
    add_node(fleet, node_facts("n"), [(T4, False)] * 2)
    fleet.add_pod(pod_request("reservation", namespace="reservations", gpus=1), "n")
    whole = pod_request("whole", namespace=names.RESERVATION_NAMESPACE, gpus=1)
    fleet.add_pod(whole, "n")
    assert fleet.nodes["n"].reservation_pods == 1
    assert fleet.nodes["n"].devices_of(whole.uid) == ("n-gpu0",)


@pytest.mark.parametrize("number", ["inventory", "stock"])
def test_trying_out_a_node_leaves_inventory_and_stock_as_they_were(number: str) -> None:
    """What is worked out from them stays good after a trial."""
    fleet = mig_fleet(2)
    before = getattr(fleet, number)
    mark = fleet.checkpoint()
    add_node(fleet, node_facts("new"), [(T4, False)])
    tried = getattr(fleet, number)
    fleet.rollback(mark)
    assert getattr(fleet, number) == before != tried
    add_node(fleet, node_facts("other"), [(T4, False)])
    assert getattr(fleet, number) not in {before, tried}


def test_the_inventory_is_another_when_anything_about_a_node_or_its_gpus_changes() -> None:
    fleet, seen = mig_fleet(1), set()
    facts, gpus = fleet.nodes["node-0"].all_facts()
    assert facts is not None

    def changed() -> bool:
        before, _ = len(seen), seen.add(fleet.inventory)
        return len(seen) > before

    assert changed()
    fleet.set_node(facts)
    fleet.set_gpus("node-0", gpus, ready=False)
    assert not changed()
    fleet.set_node(replace(facts, labels={**facts.labels, "zone": "a"}))
    assert changed()
    fleet.set_gpus("node-0", [replace(gpus[0], healthy=False)], ready=True)
    assert changed()
    fleet.remove_node("node-0")
    assert changed()
