"""A statement is undone while the cluster went on: what is left is what the cluster shows, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from apportion.core.fleet import Fleet
from apportion.core.operations import ClaimSlice, ObjectKind
from apportion.core.statement import Statement
from apportion.view.assumptions import Assumptions
from apportion.view.change_log import ChangeLog
from tests.builders.fleets import node_facts
from tests.builders.statements import NODES, applied, crowd

Shown = Callable[[ObjectKind, str], object]


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 8))
def test_what_the_cluster_showed_meanwhile_is_all_that_is_left(seed: int, count: int) -> None:
    dice = random.Random(seed)
    fleet, alone = crowd(random.Random(seed)), crowd(random.Random(seed))
    statements = applied(dice, fleet, count)
    assumptions = Assumptions(fleet, ChangeLog(), lambda: 0.0)
    for statement in statements:
        assumptions.decided(statement)
    events = random.Random(seed).sample(range(4), 4)
    for each, shown in ((fleet, assumptions.shown), (alone, lambda *_: False)):
        for event in events:
            _EVENTS[event](random.Random(seed + event), each, statements, shown)
    dice.shuffle(statements)
    for statement in statements:
        assumptions.undo(statement)
    assert fleet.record() == alone.record()


def _terminating(dice: random.Random, fleet: Fleet, _: list[Statement], _shown: Shown) -> None:
    for uid, home in _old_pods(fleet):
        request, devices = fleet.nodes[home].pods[uid], fleet.nodes[home].devices_of(uid)
        if dice.random() < 0.3 and len(devices) == request.whole_gpus:  # others get devices that are assumed anew
            fleet.add_pod(structs.replace(request, terminating=True), home)


def _gone(dice: random.Random, fleet: Fleet, _: list[Statement], shown: Shown) -> None:
    for uid, _home in _old_pods(fleet):
        if dice.random() < 0.3:
            shown(ObjectKind.POD, uid)
            shown(ObjectKind.POD_END, uid)
            fleet.remove_pod(uid)


def _node_gone(dice: random.Random, fleet: Fleet, _: list[Statement], _shown: Shown) -> None:
    fleet.remove_node(f"node-{dice.randrange(NODES)}")
    fleet.set_node(node_facts(f"node-{dice.randrange(NODES)}", cpu=48_000))


def _claim_shown(dice: random.Random, fleet: Fleet, statements: list[Statement], shown: Shown) -> None:
    for claim in (each for statement in statements for each in statement.operations if isinstance(each, ClaimSlice)):
        if dice.random() < 0.5:
            shown(ObjectKind.CLAIM, claim.name)
            fleet.add_slice(claim.name, claim.placement, claim.request.uid, node=claim.node)


def _old_pods(fleet: Fleet) -> list[tuple[str, str]]:
    """Pods that no statement brought."""
    return sorted((uid, home) for uid, home in fleet.pod_nodes.items() if "old-" in uid)


_EVENTS = (_terminating, _gone, _node_gone, _claim_shown)
