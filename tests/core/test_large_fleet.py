"""A large fleet costs memory, not time: what is tried out costs what it changes."""

from __future__ import annotations

import gc
import os
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType

import msgspec
import pytest

from apportion.apis.placements import SlicePlacement
from apportion.core import group_decision
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.policies import Policy
from tests.builders.accelerators import A100, CATALOG, T4
from tests.builders.fleets import add_node, node_facts
from tests.builders.pods import pod_request

SOAK = bool(os.environ.get("APPORTION_SOAK"))


def fleet_with(nodes: int, pods_per_node: int = 1) -> Fleet:
    fleet = Fleet(CATALOG)
    like = pod_request("like", cpu="100m")
    for number in range(nodes):
        name = f"node-{number:05}"
        add_node(fleet, node_facts(name), [(A100, True), (T4, False)])
        for index in range(pods_per_node):
            uid = f"{name}-{index}"
            fleet.add_pod(msgspec.structs.replace(like, uid=uid, name=uid), name)
    return fleet


def calls_of(work: Callable[[], object]) -> int:
    """How many Python functions a piece of work calls: its cost, the same on every machine."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    gc.disable()  # what it collects may have been left by anybody, and runs their code
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def try_out(fleet: Fleet) -> None:
    mark = fleet.checkpoint()
    fleet.add_pod(pod_request("whole", uid="whole", gpus=1), "node-00003")
    fleet.add_slice("claim", SlicePlacement("node-00004-gpu0", "3g.20gb", 0, 4), "whole")
    fleet.add_share("share", "node-00005-gpu1", 1000, "whole")
    fleet.remove_pod("node-00006-0")
    fleet.rollback(mark)


def test_trying_out_costs_the_same_in_a_large_fleet() -> None:
    small, large = fleet_with(10), fleet_with(500)
    for fleet in (small, large):
        try_out(fleet)  # once before, so that caches are filled
    assert calls_of(lambda: try_out(small)) == calls_of(lambda: try_out(large))


@pytest.mark.parametrize("wants", [{"slices": {"1g.5gb": 1}}, {"gpus": 1}, {"fraction": "0.5"}, {"cpu": "1"}], ids=str)
def test_a_decision_costs_what_changed_since_the_last_of_its_kind(wants: dict[str, object]) -> None:
    """The second pod of a kind looks at the nodes that changed, not at all nodes."""
    costs = []
    for nodes in (10, 200):
        fleet, policy = fleet_with(nodes), Policy("first-fit")
        for number in range(3):
            assert isinstance(
                group_decision.decide(fleet, Group.of(pod_request(f"pod-{number}", **wants)), policy),
                group_decision.Statement,
            )
        request = pod_request("last", **wants)
        costs.append(calls_of(lambda: group_decision.decide(fleet, Group.of(request), policy)))  # noqa: B023
    assert costs[0] == costs[1]


@pytest.mark.soak
def test_a_fleet_of_5000_nodes_and_100000_pods_is_held() -> None:
    nodes, pods = (5000, 20) if SOAK else (250, 20)
    tracemalloc.start()
    fleet = fleet_with(nodes, pods)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(fleet.pod_nodes) == nodes * pods
    assert held < 4096 * nodes * pods, "a few KiB for each pod with its part of the node"
    assert isinstance(
        group_decision.decide(fleet, Group.of(pod_request("one-more", gpus=1)), Policy()), group_decision.Statement
    )
