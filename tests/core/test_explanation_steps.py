"""Explanations in steps: nothing of them is left in between, and what changes meanwhile is taken into account."""

from __future__ import annotations

import random
from typing import Any

import pytest

from apportion.apis.request import Request
from apportion.core import group_decision
from apportion.core.explanations import remedies
from apportion.core.explanations.explanation import Explanation, refuse
from apportion.core.explanations.node_reasons import NODES_PER_STEP, NodeReasons
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import Taint
from apportion.core.groups import Group
from apportion.core.policies import Policy
from apportion.core.refusals import Refusal
from tests.builders.accelerators import A100, T4
from tests.builders.fleets import add_node, fleet_of, node_facts
from tests.builders.pods import pod_request


def _fleet(dice: random.Random, count: int) -> Fleet:
    fleet = fleet_of(
        *(
            (
                node_facts(
                    f"node-{n:04}",
                    taints=[Taint(key="x", effect="NoSchedule")] if dice.random() < 0.2 else [],
                    unschedulable=dice.random() < 0.1,
                ),
                [(A100, True)] * (n % 2) + [(T4, False)] * (n % 3),
            )
            for n in range(count)
        )
    )
    policy = Policy("first-fit")
    for wants in ({"slices": {"3g.20gb": 1}}, {"gpus": 1}):
        while isinstance(
            group_decision.decide(fleet, Group.of(pod_request(**wants)), policy, explained=False),
            group_decision.Statement,
        ):
            pass
    return fleet


def _wants(dice: random.Random) -> dict[str, Any]:
    return dice.choice(({"slices": {"3g.20gb": 1}}, {"slices": {"7g.40gb": 2}}, {"gpus": 2}, {"gpus": 1}, {"gpus": 99}))


@pytest.mark.parametrize("seed", range(15))
def test_between_two_steps_the_fleet_is_as_it_was(seed: int) -> None:
    dice = random.Random(seed)
    fleet = _fleet(dice, 8)
    before = fleet.record()
    work = Explanation(fleet, pod_request(**_wants(dice)), Policy()).steps()
    count = 0
    for _ in work:
        count += 1
        assert fleet.record() == before
    assert count


@pytest.mark.parametrize("seed", range(25))
def test_what_changes_meanwhile_is_in_the_explanation(seed: int) -> None:
    dice = random.Random(seed)
    fleet = _fleet(dice, 6)
    request = pod_request("waits", gpus=99)
    work = Explanation(fleet, request, Policy()).steps()
    steps = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            refusal: Refusal = end.value
            break
        steps += 1
        if dice.random() < 0.5 and steps < 40:
            _change(dice, fleet)
    fresh = refuse(fleet, request, Policy())
    assert refusal.groups == fresh.groups
    assert refusal.total_nodes == fresh.total_nodes
    if refusal.remedy is not None:
        assert _still_works(fleet, request, refusal)


def _change(dice: random.Random, fleet: Fleet) -> None:
    name = f"node-{dice.randrange(8):04}"
    match dice.randrange(4):
        case 0:
            fleet.remove_node(name)
        case 1:
            add_node(fleet, node_facts(name), [(T4, False)] * dice.randint(1, 4))
        case 2:
            for uid in list(fleet.nodes[name].pods if name in fleet.nodes else ()):
                fleet.remove_pod(uid)
        case _:
            fleet.add_pod(pod_request(gpus=1), name)


def _still_works(fleet: Fleet, request: Request, refusal: Refusal) -> bool:
    assert refusal.remedy is not None
    mark = fleet.checkpoint()
    try:
        changed = remedies.apply(fleet, request, refusal.remedy)
        return isinstance(
            group_decision.decide(fleet, Group.of(changed), Policy(), explained=False), group_decision.Statement
        )
    finally:
        fleet.rollback(mark)


def test_one_step_looks_at_a_limited_number_of_nodes() -> None:
    for nodes in (60, 600):
        survey = NodeReasons(_fleet(random.Random(1), nodes), pod_request(gpus=99), Policy())
        assert sum(1 for _ in survey.gather()) == nodes // NODES_PER_STEP
        assert len(survey.reasons) == nodes


@pytest.mark.parametrize("seed", range(10))
def test_an_explanation_that_is_kept_looks_only_at_what_has_changed(seed: int) -> None:
    dice = random.Random(seed)
    fleet, policy = _fleet(dice, 300), Policy()
    kept = Explanation(fleet, pod_request(gpus=99), policy)
    first = _count(kept)
    again = _count(kept)
    assert again[0] == 0
    assert again[1] == first[1]
    fleet.add_pod(pod_request(cpu="1"), "node-0004")
    _change(dice, fleet)
    later = _count(kept)
    fresh = refuse(fleet, pod_request(gpus=99), policy)
    assert (later[1].groups, later[1].total_nodes) == (fresh.groups, fresh.total_nodes)


def _count(explanation: Explanation) -> tuple[int, Refusal]:
    """Steps until it is up to date, and the refusal."""
    work, steps = explanation.steps(), 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return steps, end.value
        steps += 1


def test_an_explanation_that_was_broken_off_begins_anew() -> None:
    fleet, policy = _fleet(random.Random(3), 300), Policy()
    kept = Explanation(fleet, pod_request(gpus=99), policy)
    work = kept.steps()
    next(work)
    work.close()
    _, refusal = _count(kept)
    assert refusal.groups == refuse(fleet, pod_request(gpus=99), policy).groups
