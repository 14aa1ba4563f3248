"""Nodes and places are ranked by policy, the same way every time."""

from __future__ import annotations

import pytest

from apportion.apis.errors import RequestError
from apportion.core import group_decision
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.operations import BindShare
from apportion.core.placement import slice_value
from apportion.core.placement.request_mix import Mix
from apportion.core.policies import Policy
from tests.builders.accelerators import A100, T4, model
from tests.builders.fleets import fleet_of, mig_fleet, node_facts
from tests.builders.pods import pod_request


def placed(fleet: Fleet, policy: Policy, **wants: object) -> group_decision.Statement:
    outcome = group_decision.decide(fleet, Group.of(pod_request(**wants)), policy)
    assert isinstance(outcome, group_decision.Statement)
    return outcome


def test_s05_an_unknown_policy_is_refused() -> None:
    with pytest.raises(RequestError, match="must be one of"):
        Policy.named("random")


def test_g04_a_fraction_is_of_the_chosen_devices_memory() -> None:
    plan = placed(fleet_of((node_facts("node-0"), [(T4, False)])), Policy(), fraction="0.333")
    (bind,) = plan.binds
    assert isinstance(bind, BindShare)
    assert bind.shares == (("node-0-gpu0", 333 * 15360 // 1000),)


def test_a_group_is_placed_whole_or_not_at_all() -> None:
    fleet = mig_fleet(1)
    before = fleet.record()
    group = [pod_request(slices={"3g.20gb": 1}) for _ in range(3)]
    assert isinstance(group_decision.decide(fleet, Group.of(*group), Policy()), group_decision.Refusal)
    assert fleet.record() == before
    assert isinstance(group_decision.decide(fleet, Group.of(*group[:2]), Policy()), group_decision.Statement)


def test_the_mix_is_learned_once_per_pod_and_fades() -> None:
    mix = Mix()
    request = pod_request(fraction="0.5")
    for _ in range(3):
        mix.observe(request)
    assert sum(mix.weights.values()) == mix.total == 1 << 10
    for number in range(9000):
        mix.observe(pod_request(f"whole-{number}", gpus=1))
    assert mix.total < 8192 << 10
    assert mix.generation > 10


def test_potential_prefers_places_that_leave_more() -> None:
    gpu = mig_fleet(1).nodes["node-0"].gpus["node-0-gpu0"]
    cut, shape = gpu.grid, gpu.grid.shape("1g.5gb")
    assert shape is not None
    values = {start: slice_value.layout_value(cut, cut.put(0, shape, start)) for start in shape.starts}
    assert max(values, key=lambda start: (values[start], start)) == 6
    assert all(value < slice_value.layout_value(cut, 0) for value in values.values())
    assert model(A100).units == 8
