"""The plain path and the fast path make the same decision, whatever is asked of whatever fleet."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apportion.apis.placements import SlicePlacement
from apportion.apis.request import POLICIES, Request
from apportion.core import group_decision
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import Taint
from apportion.core.groups import Group
from apportion.core.node import NodeState
from apportion.core.policies import Policy
from tests.builders.accelerators import A100, CATALOG, H100, T4
from tests.builders.fleets import add_node, node_facts
from tests.builders.pods import pod_request

PRODUCTS = ("nvidia.com/gpu.product",)
SOAK = bool(os.environ.get("APPORTION_SOAK"))


@pytest.mark.soak
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(200 if SOAK else 4))
def test_s05_plain_and_fast_path_agree_on_every_decision(policy: str, seed: int) -> None:
    _compare(random.Random(f"{policy}{seed}"), policy, 120)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(dice=st.randoms(use_true_random=False), policy=st.sampled_from(POLICIES), steps=st.integers(1, 25))
def test_s05_no_sequence_of_requests_tells_the_two_paths_apart(dice: random.Random, policy: str, steps: int) -> None:
    _compare(dice, policy, steps)


def _compare(dice: random.Random, policy: str, steps: int) -> None:
    seed = dice.randrange(1000)
    plain, fast = _fleet(seed), _fleet(seed)
    by_hand, by_row = Policy(policy), Policy(policy)
    running: list[str] = []
    for number in range(steps):
        request = _request(dice, number)
        if dice.random() < 0.2:
            nodes = dice.sample([f"node-{index}" for index in range(12)], dice.randint(1, 12))
            plain.failed_nodes[request.uid] = fast.failed_nodes[request.uid] = tuple(nodes)
        slow = group_decision.decide(plain, Group.of(request), by_hand, plain=True)
        quick = group_decision.decide(fast, Group.of(request), by_row)
        assert slow == quick
        if isinstance(quick, group_decision.Statement):
            running.append(request.uid)
        if running and dice.random() < 0.3:
            _end(plain, fast, running.pop(dice.randrange(len(running))))
        if dice.random() < 0.05:
            _disturb(dice, plain, fast)
        assert plain.record() == fast.record()
        assert_sound(fast)


def assert_sound(fleet: Fleet) -> None:
    """Nothing overlaps, nothing is allocated twice, every GPU has one use, and the ledgers agree with the records."""
    for state in fleet:
        held = [request.whole_gpus for request in state.pods.values()]
        given = sum(gpu.held for gpu in state.gpus.values())
        assert given <= sum(held)
        for gpu in state.gpus.values():
            uses = [bool(gpu.slices), bool(gpu.shares), gpu.whole is not None]
            assert sum(uses) <= 1, "one use at a time"
            assert not gpu.slices or gpu.facts.mig
            assert not (gpu.shares or gpu.whole) or not gpu.facts.mig
            assert sum(gpu.shares.values()) == gpu.shared_mib <= gpu.memory_mib
            units = [unit for held in gpu.slices.values() for unit in _units(held.placement)]
            assert len(units) == len(set(units)), "slices overlap"
            assert (gpu.state & gpu.grid.full).bit_count() == len(units), "no unit is lost"
    assert sum(len(gpu.slices) for state in fleet for gpu in state.gpus.values()) <= len(fleet.slices)


def _units(placement: SlicePlacement) -> range:
    return range(placement.start, placement.start + placement.size)


def _end(plain: Fleet, fast: Fleet, uid: str) -> None:
    for fleet in (plain, fast):
        for piece in fleet.slices_of(uid):
            fleet.remove_slice(piece.key)
        for share in fleet.shares_of(uid):
            fleet.remove_share(share.key)
        fleet.remove_pod(uid)


def _disturb(dice: random.Random, plain: Fleet, fast: Fleet) -> None:
    name = f"node-{dice.randrange(12)}"
    what = dice.choice(("cordon", "lose", "unready", "grow", "hide", "close", "crowd", "reserve"))
    cpu, new = dice.choice((8_000, 64_000)), 10 + dice.randrange(4)
    odd, pods = dice.randrange(4), dice.choice((1, 2, 3, 110))
    for fleet in (plain, fast):
        state = fleet.nodes.get(name)
        if what == "grow" or state is None or state.facts is None:
            add_node(fleet, node_facts(f"node-{new}", cpu=cpu), [(T4, False)] * 2)
        elif what == "cordon":
            add_node(fleet, node_facts(name, unschedulable=True), [])
        elif what == "lose":
            fleet.remove_node(name)
        elif what in {"hide", "close"}:
            facts = [gpu.facts for gpu in state.gpus.values()]
            change = {"measured": False} if what == "hide" else {"takes_shares": False}
            facts[odd:] = [replace(each, **change) for each in facts[odd:]]
            fleet.set_gpus(name, facts, ready=state.ready)
        elif what == "crowd":
            fleet.set_node(replace(state.facts, allocatable={**state.facts.allocatable, "pods": pods}))
        elif what == "reserve":
            _reserve(fleet, state, odd)
        else:
            fleet.set_gpus(name, [gpu.facts for gpu in state.gpus.values()], ready=False)


def _reserve(fleet: Fleet, state: NodeState, number: int) -> None:
    """A reservation pod comes, for a GPU that is shared or for none."""
    held = pod_request(f"reservation-{state.name}-{number}", namespace=fleet.reservation_namespace, gpus=1)
    fleet.add_pod(held, state.name)
    shared = tuple(uuid for uuid, gpu in state.gpus.items() if gpu.shares)
    fleet.set_devices(state.name, {held.uid: shared[number : number + 1]})


def _fleet(seed: int) -> Fleet:
    dice = random.Random(seed)
    fleet = Fleet(CATALOG)
    for number in range(10):
        gpus = [(dice.choice((A100, H100)), True)] * dice.randint(0, 2) + [(T4, False)] * dice.randint(0, 4)
        labels = {PRODUCTS[0]: dice.choice(("Tesla-T4", "other"))}
        taints = [Taint(key="slow", effect="PreferNoSchedule")] if dice.random() < 0.2 else []
        facts = node_facts(f"node-{number}", cpu=dice.choice((4_000, 16_000, 64_000)), labels=labels, taints=taints)
        add_node(fleet, facts, gpus)
    return fleet


def _request(dice: random.Random, number: int) -> Request:
    cpu = dice.choice(("100m", "500m", "2", "3500m"))
    kind = dice.choice(("cpu", "share", "share", "mib", "pair", "whole", "whole", "slices", "slices"))
    more: dict[str, object] = {}
    if dice.random() < 0.2:
        more["nodeSelector"] = {PRODUCTS[0]: "Tesla-T4"}
    if dice.random() < 0.1:
        preferred = {"matchExpressions": [{"key": PRODUCTS[0], "operator": "In", "values": ["other"]}]}
        wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": preferred}]}
        more["affinity"] = {"nodeAffinity": wish}
    if dice.random() < 0.1:
        more["annotations"] = {"apportion.io/policy": dice.choice(POLICIES)}
    match kind:
        case "share":
            more["fraction"] = dice.choice(("0.25", "0.5", "0.47", "0.81"))
        case "mib":
            more["memory"] = dice.choice((1, 2000, 9000))
        case "pair":
            amount = dice.choice(({"fraction": "0.3"}, {"memory": 5000}))
            more |= {**amount, "devices": dice.choice((2, 2, 3))}
        case "whole":
            more["gpus"] = dice.choice((1, 1, 2, 4))
        case "slices":
            profiles = dice.choice((("1g.5gb",), ("2g.10gb", "1g.5gb"), ("3g.20gb",), ("1g.10gb",), ("7g.40gb",)))
            more["slices"] = dict.fromkeys(profiles, 1)
        case _:
            pass
    return pod_request(f"pod-{number}", cpu=cpu, **more)
