"""The policy in a snapshot: what the scheduler has learned decides the same after it was saved and loaded."""

from __future__ import annotations

import json
import random

import pytest

from apportion.apis.errors import InputError
from apportion.apis.request import Request
from apportion.core import group_decision
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.policies import Policy
from apportion.view import snapshot
from apportion.view.view import View
from tests.builders.accelerators import T4
from tests.builders.fleets import fleet_of, node_facts
from tests.builders.pods import pod_request

WISHES = ({"gpus": 1}, {"gpus": 2}, {"fraction": "0.5"}, {"fraction": "0.3"}, {"gpus": 4, "cpu": "8"}, {"cpu": "2"})


def decided(fleet: Fleet, requests: list[Request], policy: Policy) -> list[str]:
    outcomes = [group_decision.decide(fleet, Group.of(request), policy, explained=False) for request in requests]
    return [outcome.node if isinstance(outcome, group_decision.Statement) else "" for outcome in outcomes]


def test_x03_a_saved_and_loaded_fleet_decides_the_same_as_under_the_learned_policy() -> None:
    fresh_differs = 0
    for seed in range(60):
        dice = random.Random(seed)
        fleet = fleet_of(*((node_facts(f"n{n}", cpu=16_000), [(T4, False)] * 4) for n in range(4)))
        policy, usual = Policy(), dice.sample(WISHES, 2)
        for number in range(dice.randint(0, 200)):
            policy.mix.observe(pod_request(f"earlier-{number}", **dice.choice(usual)))
        decided(fleet, [pod_request(f"old-{n}", **dice.choice(WISHES)) for n in range(8)], policy)
        waiting = [pod_request(f"new-{n}", **dice.choice(WISHES)) for n in range(12)]
        policy.mix.observe(waiting[0])
        saved = snapshot.save_fleet(fleet, waiting, policy)
        loaded, unlearned = snapshot.load(saved), snapshot.load(saved)
        assert snapshot.save_fleet(loaded.fleet, loaded.waiting, loaded.policy) == saved
        expected = decided(fleet, waiting, policy)
        assert decided(loaded.fleet, waiting, loaded.policy) == expected
        fresh_differs += decided(unlearned.fleet, waiting, Policy()) != expected
    assert fresh_differs, "otherwise this test shows nothing"


def test_x03_a_snapshot_without_a_policy_loads_with_one_that_has_learned_nothing() -> None:
    plain = json.loads(snapshot.save(View()))
    assert not {"mix", "policy"} & set(plain), "as before policies were saved"
    loaded = snapshot.load(json.dumps(plain).encode())
    assert (loaded.policy.name, loaded.policy.mix.total) == ("fragmentation", 0)


def test_x03_the_name_of_the_policy_is_saved_and_checked() -> None:
    saved = snapshot.save(View(), Policy("pack"))
    assert snapshot.load(saved).policy.name == "pack"
    with pytest.raises(InputError, match="is not a known policy"):
        snapshot.load(saved.replace(b'"pack"', b'"luck"'))
