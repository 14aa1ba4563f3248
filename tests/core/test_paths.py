"""The plain path and the fast path make the same decision, whatever is asked of whatever fleet."""

from __future__ import annotations

import random

import pytest

from apportion.apis.request import POLICIES, Request
from apportion.core import cycle
from apportion.core.facts import Taint
from apportion.core.fleet import Fleet
from apportion.core.policies import Policy
from tests.core.making import A100, CATALOG, H100, T4, add_node, node, pod

PRODUCTS = ("nvidia.com/gpu.product",)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(6))
def test_s05_plain_and_fast_path_agree_on_every_decision(policy: str, seed: int) -> None:
    dice = random.Random(f"{policy}{seed}")
    plain, fast = _fleet(seed), _fleet(seed)
    by_hand, by_row = Policy(policy), Policy(policy)
    running: list[str] = []
    for number in range(120):
        request = _request(dice, number)
        slow = cycle.decide(plain, [request], by_hand, plain=True)
        quick = cycle.decide(fast, [request], by_row)
        assert slow == quick
        if isinstance(quick, cycle.Plan):
            running.append(request.uid)
        if running and dice.random() < 0.3:
            _end(plain, fast, running.pop(dice.randrange(len(running))))
        if dice.random() < 0.05:
            _disturb(dice, plain, fast)
        assert plain.record() == fast.record()


def _end(plain: Fleet, fast: Fleet, uid: str) -> None:
    for fleet in (plain, fast):
        for piece in fleet.slices_of(uid):
            fleet.remove_slice(piece.key)
        for share in fleet.shares_of(uid):
            fleet.remove_share(share.key)
        fleet.remove_pod(uid)


def _disturb(dice: random.Random, plain: Fleet, fast: Fleet) -> None:
    name = f"node-{dice.randrange(12)}"
    what = dice.choice(("cordon", "lose", "unready", "grow"))
    cpu = dice.choice((8_000, 64_000))
    for fleet in (plain, fast):
        state = fleet.nodes.get(name)
        if what == "grow" or state is None or state.facts is None:
            add_node(fleet, node(f"node-{9 + dice.getstate()[1][0] % 4}", cpu=cpu), [(T4, False)] * 2)
        elif what == "cordon":
            add_node(fleet, node(name, unschedulable=True), [])
        elif what == "lose":
            fleet.remove_node(name)
        else:
            fleet.set_gpus(name, [gpu.facts for gpu in state.gpus.values()], ready=False)


def _fleet(seed: int) -> Fleet:
    dice = random.Random(seed)
    fleet = Fleet(CATALOG)
    for number in range(10):
        gpus = [(dice.choice((A100, H100)), True)] * dice.randint(0, 2) + [(T4, False)] * dice.randint(0, 4)
        labels = {PRODUCTS[0]: dice.choice(("Tesla-T4", "other"))}
        taints = [Taint(key="slow", effect="PreferNoSchedule")] if dice.random() < 0.2 else []
        facts = node(f"node-{number}", cpu=dice.choice((4_000, 16_000, 64_000)), labels=labels, taints=taints)
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
            more |= {"fraction": "0.3", "devices": 2}
        case "whole":
            more["gpus"] = dice.choice((1, 1, 2, 4))
        case "slices":
            profiles = dice.choice((("1g.5gb",), ("2g.10gb", "1g.5gb"), ("3g.20gb",), ("1g.10gb",), ("7g.40gb",)))
            more["slices"] = dict.fromkeys(profiles, 1)
        case _:
            pass
    return pod(f"pod-{number}", cpu=cpu, **more)
