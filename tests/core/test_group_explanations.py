"""Why a group has no place: the answer of a decision, worked out in steps that leave nothing in the fleet."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from apportion.core import group_decision
from apportion.core.explanations.group_explanation import GroupExplanation
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import Reservation
from apportion.core.groups import Group
from apportion.core.policies import Policy
from apportion.core.reasons import Code
from apportion.core.refusals import Refusal
from tests.builders.accelerators import T4
from tests.builders.fleets import fleet_of, node_facts
from tests.builders.pods import pod_request


def _fleet(nodes: int, gpus: int = 2) -> Fleet:
    return fleet_of(*((node_facts(f"node-{n:03}"), [(T4, False)] * gpus) for n in range(nodes)))


def _decided(fleet: Fleet, group: Group) -> Refusal:
    mark = fleet.checkpoint()
    outcome = group_decision.decide(fleet, group, Policy())
    fleet.rollback(mark)
    assert isinstance(outcome, Refusal)
    return outcome


def _explained(explanation: GroupExplanation, fleet: Fleet) -> tuple[int, Refusal | None]:
    """Steps, and the refusal; after each step the fleet is as it was."""
    before, steps, work = fleet.record(), 0, explanation.steps()
    while True:
        try:
            next(work)
        except StopIteration as end:
            return steps, end.value
        finally:
            assert fleet.record() == before
        steps += 1


def _to_the_end(work: Generator[None, None, Refusal | None]) -> Iterator[Any]:
    refusal = yield from work
    assert refusal is not None
    yield refusal


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_group_gets_the_answer_of_a_decision(size: int) -> None:
    fleet = _fleet(size - 1 or 1, gpus=2)
    group = Group.of(*(pod_request(f"member-{n}", gpus=2 if size > 1 else 3) for n in range(size)))
    steps, refusal = _explained(GroupExplanation(fleet, group, Policy()), fleet)
    assert refusal == _decided(fleet, group)
    assert steps >= size


def test_between_two_steps_others_may_take_the_places_of_the_group() -> None:
    fleet = _fleet(3)
    group = Group.of(*(pod_request(f"member-{n}", gpus=2) for n in range(4)))
    work = GroupExplanation(fleet, group, Policy()).steps()
    for number in range(8):
        next(work)
        if number % 3 == 0:
            fleet.add_pod(pod_request(gpus=2), f"node-00{number // 3}")
    *_, refusal = _to_the_end(work)
    assert refusal.groups == _decided(fleet, group).groups


def test_a_group_that_has_a_place_by_now_is_not_refused() -> None:
    fleet = _fleet(2)
    group = Group.of(pod_request(gpus=2), pod_request(gpus=2))
    assert _explained(GroupExplanation(fleet, group, Policy()), fleet)[1] is None


def test_a_reason_that_does_not_depend_on_nodes_needs_no_steps_over_nodes() -> None:
    fleet = _fleet(1)
    fleet.sharing = False
    group = Group.of(pod_request(gpus=1), pod_request(fraction="0.5"))
    steps, refusal = _explained(GroupExplanation(fleet, group, Policy()), fleet)
    assert refusal is not None
    assert (steps, refusal.code) == (1, Code.NO_SHARING)


def test_what_is_reserved_for_the_group_is_free_for_it() -> None:
    fleet = _fleet(1)
    fleet.reserve(Reservation("kept", "node-000", {"nvidia.com/gpu": 2}, owner="gang"))
    group = Group.of(pod_request(gpus=3), key="gang")
    _, refusal = _explained(GroupExplanation(fleet, group, Policy()), fleet)
    assert refusal == _decided(fleet, group)
    assert refusal.groups[0].free == 2


@pytest.mark.parametrize("seed", range(10))
def test_an_explanation_that_is_kept_follows_the_fleet(seed: int) -> None:
    dice = random.Random(seed)
    fleet = _fleet(6)
    group = Group.of(*(pod_request(f"member-{n}", gpus=2) for n in range(7)))
    kept = GroupExplanation(fleet, group, Policy())
    for _ in range(5):
        assert _explained(kept, fleet)[1] == _decided(fleet, group)
        fleet.add_pod(pod_request(gpus=dice.randint(1, 2)), f"node-00{dice.randrange(6)}")
