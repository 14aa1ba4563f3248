"""What a group is told about its queue: where it stands, why nothing is reclaimed, and quotas that really admit it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from apportion.apis.identities import NodeName
from apportion.core import group_decision, group_turns
from apportion.core.evictions import room
from apportion.core.evictions.disruption_budgets import KnownBudgets
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.explanations import explanation, messages, queue_standing, remedies
from apportion.core.explanations.queue_advice import QueueAdvice
from apportion.core.groups import Group
from apportion.core.queues import raises
from apportion.core.queues.entitlements import Entitlements
from apportion.core.queues.tree import Queue
from apportion.core.reasons import Code, Layer
from apportion.core.refusals import NoReclaim, Refusal, Remedy
from apportion.core.statement import Statement
from tests.builders.accelerators import A100
from tests.builders.fleets import add_node, node_facts
from tests.core.evictions.worlds import World, queue, uid


def advised(world: World, group: Group, now: int = 0) -> Refusal:
    """What `group`, which waits in `world`, is told."""
    fleet = world.fleet
    entitled = Entitlements(fleet)
    for members in world.pending.values():
        for member in members:
            entitled.demand.add(member)
    before = fleet.record()
    advice = QueueAdvice(fleet, world.policy, entitled, lambda: RunningGroups(fleet, now))
    turn = group_turns.next_turn(fleet, group.members)
    assert not isinstance(turn, Refusal), messages.of(turn)
    if group_turns.stopped(fleet, turn) is not None:
        found = explanation.worked_out(advice.stopped(turn.group))
    else:
        mark = fleet.checkpoint()
        outcome = group_decision.decide(fleet, turn.group, world.policy, observed=False)
        fleet.rollback(mark)
        assert isinstance(outcome, Refusal), "it has a place"
        found = explanation.worked_out(advice.without_place(turn.group, outcome))
    assert fleet.record() == before, "explaining changes nothing"
    assert found is not None
    return found


def said(world: World, *members: Any, now: int = 0) -> str:
    return messages.of(advised(world, world.wait(*members), now))


def full(*queues: Queue, gpus: int = 2, **about: Any) -> World:
    """A node whose GPUs are used by pods a0, a1, ... of queue a."""
    world = World({"n": gpus}, queues)
    for number in range(gpus):
        world.run(world.request(f"a{number}", "a", gpus=1, **about))
    return world


def test_x01_q05_a_limit_is_told_with_its_numbers_and_the_least_that_admits() -> None:
    world = World({"n": 8}, [queue("top", 8, limit=4), queue("a", 8, limit=3, parent="top")])
    for number in range(2):
        world.run(world.request(f"a{number}", "a", gpus=1))
    group = world.wait(world.request("x", "a", gpus=4, group="g"), world.request("y", "a", group="g"))
    world.gang("default/g", 2)
    assert messages.of(advised(world, group)) == (
        "Cannot be scheduled now: queue a can never run this: its limit is 3 GPUs, and 4 are requested at once. "
        "Cheapest change: increase spec.resources.gpu.limit of queue a from 3 to 6 and "
        "increase spec.resources.gpu.limit of queue top from 4 to 6."
    )
    assert said(world, world.request("z", "a", gpus=2)) == (
        "Cannot be scheduled now: queue a would exceed its limit: 2 of 3 GPUs in use, 2 more requested. "
        "Cheapest change: request nvidia.com/gpu 1 instead of 2."
    )


def test_x01_q05_the_quota_of_pods_that_are_not_preemptible_is_told_of_the_queue_that_lacks_it() -> None:
    world = World({"n": 8}, [queue("top", 1), queue("a", 4, parent="top")])
    world.run(world.request("a0", "a", gpus=1, priority=100))
    assert said(world, world.request("x", "a", gpus=1, priority=100)) == (
        "Cannot be scheduled now: queue top would exceed its quota with pods that are not preemptible: "
        "1 of 1 GPU in use by these, 1 more requested. "
        "Cheapest change: increase spec.resources.gpu.quota of queue top from 1 to 2."
    )


def test_x01_q06_a_queue_at_its_share_is_told_its_numbers_and_the_quota_that_reclaims() -> None:
    world = full(queue("a", 2), queue("b", 0))
    assert said(world, world.request("x", "b", gpus=1)) == (
        "0/1 nodes are available for 1 x nvidia.com/gpu: 1 node has too few free GPUs (needs 1, 2 of 2 in use). "
        "Queue b: 0 of a fair share of 0 GPUs in use (quota 0); 1 more would exceed it, so nothing is reclaimed. "
        "Cheapest change: free 1 x nvidia.com/gpu on node n by deleting pod default/a1."
    ), "a is within its quota, so no quota of b helps"
    world = full(queue("a", 1), queue("b", 0, weight=0))
    assert said(world, world.request("x", "b", gpus=1)).endswith(
        "Cheapest change: increase spec.resources.gpu.quota of queue b from 0 to 1."
    )


def test_x01_q06_the_quotas_of_the_fewest_queues_upwards_are_proposed() -> None:
    tree = [queue("d1", 1), queue("d2", 0, weight=0), queue("a", 1, parent="d1"), queue("b", 0, weight=0, parent="d2")]
    world = full(*tree)
    assert said(world, world.request("x", "b", gpus=1)).endswith(
        "Cheapest change: increase spec.resources.gpu.quota of queue b from 0 to 1 and "
        "increase spec.resources.gpu.quota of queue d2 from 0 to 1."
    )


@pytest.mark.parametrize(
    ("about", "budget", "now", "why"),
    [
        ({"priority": 100}, 1, 0, "2 not preemptible"),
        ({}, 0, 0, "2 under a disruption budget that allows no eviction"),
        ({}, 1, 105, "2 within their minimum runtime"),
    ],
)
def test_x01_q07_q10_what_protects_the_pods_of_others_is_told(
    about: dict[str, int], budget: int, now: int, why: str
) -> None:
    world = full(queue("a", 2 if about else 1, reclaim_min_runtime=10), queue("b", 1), **about)
    world.fleet.accounts.set_tree(
        raises.applied(world.fleet.accounts.tree, [raises.Raise("a", raises.Gate.QUOTA, "gpu", 2000, 1000)])
    )
    world.fleet.budgets = KnownBudgets({"default/x": budget}, {uid(f"a{n}"): ("default/x",) for n in range(2)})
    for number in range(2):
        world.gang(uid(f"a{number}"), 1, started=100 if now else 0)
    refusal = advised(world, world.wait(world.request("x", "b", gpus=1, namespace="other")), now or 1000)
    assert refusal.standing is not None
    assert refusal.standing.reclaim is NoReclaim.PROTECTED
    text = messages.of(refusal)
    assert f"queue a uses more than its share, but the pods there are protected: {why}." in text
    assert "default/" not in text, "no pods of another namespace"


def test_x01_the_pods_of_others_are_counted_in_steps_and_may_end_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_standing, "_PODS_PER_STEP", 2)
    world = full(queue("a"), queue("b", 12), gpus=12)
    for number in range(4):
        world.fleet.add_pod(world.request(f"fixed{number}", "a", gpus=1, priority=100), NodeName("n"))
    world.fleet.budgets = KnownBudgets({"default/x": 0}, {uid(f"a{n}"): ("default/x",) for n in range(12)})
    running = RunningGroups(world.fleet)
    group = world.wait(world.request("x", "b", gpus=1))
    steps = queue_standing.standing(world.fleet, group, world.shares(), lambda: running)
    next(steps)
    world.fleet.remove_pod(uid("fixed3"))
    number = 1
    while True:
        try:
            next(steps)
            number += 1
        except StopIteration as end:
            found = end.value
            break
    assert number == (12 + 4) // 2 + 12
    assert found.protected == (("not preemptible", 3), ("under a disruption budget that allows no eviction", 12))


def test_x01_q06_nobody_above_is_told() -> None:
    world = World({"n": 4, "m": 4}, [queue("a", 4), queue("b", 4)])
    for number, node in enumerate("nnm"):
        world.run(world.request(f"a{number}", "a", gpus=1), node)
    assert "no other queue uses more than its fair share, so there is nothing to reclaim" in said(
        world, world.request("x", "b", gpus=4)
    )


def test_x01_where_there_is_one_queue_its_share_is_not_told() -> None:
    world = full(queue("top", 4), queue("a", 4, parent="top"))
    assert "fair share" not in said(world, world.request("x", "a", gpus=1))


def test_x01_q07_a_gang_that_is_larger_than_the_cluster_can_never_be_scheduled() -> None:
    world = World({"n": 2, "m": 2}, [queue("a", 9), queue("b", 0)])
    group = world.wait(*(world.request(f"g{number}", "a", gpus=1, group="g") for number in range(5)))
    world.gang("default/g", 5)
    refusal = advised(world, group)
    assert (refusal.code, refusal.layer) == (Code.TOO_LARGE, Layer.GANG)
    text = messages.of(refusal)
    assert (
        "The group can never be scheduled here: the 5 pods that start together request 5 GPUs, and the cluster has 4."
        in text
    )
    assert text.endswith("Cheapest change: add a node like m.")


def test_x01_q07_a_gang_whose_pods_do_not_fit_beside_each_other_can_never_be_scheduled() -> None:
    world = World({"n": 3, "m": 3}, [queue("a", 9)])
    group = world.wait(*(world.request(f"g{number}", "a", gpus=2, group="g") for number in range(3)))
    world.gang("default/g", 3)
    assert "3 pods start together, and 2 of them have a place even if nothing else runs" in messages.of(
        advised(world, group)
    )


def test_x01_a_pod_that_no_node_can_hold_is_told_so() -> None:
    world = World({"n": 1}, [queue("a", 9)], mig=True)
    text = said(world, world.request("x", "a", slices={"7g.40gb": 1}, cpu="900"))
    assert "can never be scheduled on the nodes of this cluster" in text


def test_x01_what_can_never_be_scheduled_can_be_on_other_nodes() -> None:
    world = World({"n": 2}, [queue("a", 9), queue("b", 0)])
    group = world.wait(*(world.request(f"g{number}", "a", gpus=2, group="g") for number in range(2)))
    world.gang("default/g", 2)
    fleet = world.fleet
    advice = QueueAdvice(fleet, world.policy, Entitlements(fleet), lambda: RunningGroups(fleet))

    def remark() -> str:
        mark = fleet.checkpoint()
        outcome = group_decision.decide(fleet, group, world.policy, observed=False)
        fleet.rollback(mark)
        assert isinstance(outcome, Refusal)
        return explanation.worked_out(advice.without_place(group, outcome)).remark

    assert "can never be scheduled" in remark()
    assert "can never be scheduled" in remark(), "as before"
    add_node(fleet, node_facts("m"), [(A100, False)] * 2)
    world.run(world.request("other", "b", gpus=1), "m")
    assert remark() == ""


@pytest.mark.parametrize("size", [1, 3])
def test_x01_the_remedy_of_a_gang_admits_the_whole_gang(size: int) -> None:
    world = full(queue("a", 0), queue("b", 0), gpus=4)
    members = [world.request(f"g{number}", "b", gpus=1, group="g") for number in range(size)]
    world.gang("default/g", size)
    refusal = advised(world, world.wait(*members))
    assert refusal.remedy is not None
    assert refusal.remedy.kind == remedies.QUOTA
    assert [each.after for each in refusal.remedy.raises] == [1000 * size]


@pytest.mark.parametrize("seed", range(80))
def test_x01_applying_the_cheapest_change_of_queues_admits_the_group(seed: int) -> None:
    """Through the turn, the gates, and then a place or an eviction; with a milli less, a gate stays closed."""
    dice = random.Random(seed)
    seen: Counter[str] = Counter()
    for number in range(8):
        world, group = _crowded(dice, number)
        turn = group_turns.next_turn(world.fleet, group.members)
        assert not isinstance(turn, Refusal)
        stopped = group_turns.stopped(world.fleet, turn)
        if stopped is None and _admitted(world, group):
            continue
        refusal = advised(world, group)
        text = messages.of(refusal)
        assert len(text) <= messages.LONGEST
        if refusal.remedy is None:
            seen["none"] += 1
            continue
        seen[refusal.remedy.kind] += 1
        if stopped is not None and _has_place(world, group):
            assert refusal.remedy.kind in {remedies.SMALLER, remedies.QUOTA}, text
            for each in refusal.remedy.raises:
                assert not _passes(world, group, refusal, each), text
        assert _admitted(world, _changed(world, group, refusal, refusal.remedy)), text
    assert seen


def _crowded(dice: random.Random, number: int) -> tuple[World, Group]:
    """A cluster with pods of two queues, and a group of queue b that waits; whole GPUs, or slices."""
    mig = dice.random() < 0.4
    world = World(
        {f"n{n}": dice.choice((1, 2) if mig else (2, 4)) for n in range(dice.randint(1, 3))}, _queues(dice), mig=mig
    )
    for each in range(dice.randint(0, 12)):
        request = world.request(
            f"early-{number}-{each}", dice.choice("ab"), priority=dice.choice((50, 75, 100)), **_wants(dice, mig=mig)
        )
        outcome = group_turns.next_turn(world.fleet, [request])
        if not isinstance(outcome, Refusal) and group_turns.stopped(world.fleet, outcome) is None:
            group_decision.decide(world.fleet, Group.of(request), world.policy, explained=False)
    size = dice.choice((1, 1, 2, 3))
    priority = dice.choice((50, 50, 100))
    wants = _wants(dice, mig=mig, large=True)
    members = [
        world.request(f"late-{number}-{n}", "b", priority=priority, group="g" if size > 1 else None, **wants)
        for n in range(size)
    ]
    if size > 1:
        world.gang("default/g", size)
    return world, world.wait(*members)


def _queues(dice: random.Random) -> list[Queue]:
    """Two paths of the same depth, with leaves a and b."""
    depth, found = dice.randint(1, 3), []
    for side in "ab":
        parent = ""
        for level in range(depth):
            name = side if level == depth - 1 else f"{side}-{level}"
            quota, limit, weight = dice.choice((0, 1, 2, 4, 8)), dice.choice((-1, -1, 1, 2, 4, 6)), dice.choice((0, 1))
            found.append(queue(name, quota, limit=limit, parent=parent, weight=weight))
            parent = name
    return found


def _wants(dice: random.Random, *, mig: bool, large: bool = False) -> dict[str, Any]:
    if mig:
        return {"slices": {dice.choice(("3g.20gb", "7g.40gb") if large else ("1g.5gb", "2g.10gb", "3g.20gb")): 1}}
    return {"gpus": dice.choice((1, 2, 4) if large else (1, 1, 2))}


def _changed(world: World, group: Group, refusal: Refusal, remedy: Remedy) -> Group:
    changed = remedies.apply_to_group(world.fleet, group, refusal.uid, remedy)
    world.pending = {changed.key: list(changed.members)}
    return changed


def _passes(world: World, group: Group, refusal: Refusal, change: raises.Raise) -> bool:
    """The gates, if one of the changes is a milli less than proposed."""
    assert refusal.remedy is not None
    less = tuple(each._replace(after=each.after - 1) if each == change else each for each in refusal.remedy.raises)
    accounts, before = world.fleet.accounts, world.fleet.accounts.tree
    mark = world.fleet.checkpoint()
    try:
        changed = remedies.apply_to_group(world.fleet, group, refusal.uid, replace(refusal.remedy, raises=less))
        turn = group_turns.next_turn(world.fleet, changed.members)
        assert not isinstance(turn, Refusal)
        return group_turns.stopped(world.fleet, turn) is None
    finally:
        world.fleet.rollback(mark)
        accounts.set_tree(before)


def _has_place(world: World, group: Group) -> bool:
    mark = world.fleet.checkpoint()
    outcome = group_decision.decide(world.fleet, group, world.policy, explained=False, observed=False)
    world.fleet.rollback(mark)
    return isinstance(outcome, Statement)


def _admitted(world: World, group: Group) -> bool:
    """It has its turn, and a place at once or after evictions. Nothing is changed."""
    fleet = world.fleet
    turn = group_turns.next_turn(fleet, group.members)
    assert not isinstance(turn, Refusal)
    mark = fleet.checkpoint()
    try:
        if group_turns.stopped(fleet, turn) is None:
            outcome = group_decision.decide(fleet, turn.group, world.policy, explained=False, observed=False)
            if isinstance(outcome, Statement):
                return True
        return room.make_room(fleet, turn.group, world.policy, world.shares(), RunningGroups(fleet, 0)) is not None
    finally:
        fleet.rollback(mark)
