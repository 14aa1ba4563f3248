"""Conditions of queues: what is wrong or noteworthy, with numbers."""

from __future__ import annotations

from apportion.apis.identities import QueueName
from apportion.core.explanations import queue_conditions
from apportion.core.queues import totals
from apportion.core.queues.tree import Queue, QueueTree
from tests.core.evictions.worlds import World, queue


def conditions(world: World, name: str) -> dict[str, str]:
    total = totals.total(world.fleet)
    found = queue_conditions.conditions(world.fleet.accounts, world.shares(), total, QueueName(name))
    return {each.type: each.message for each in found}


def crowded(*queues: Queue) -> World:
    """Four GPUs, three of them used by queue a; b waits for four."""
    world = World({"n": 4}, queues)
    for number in range(3):
        world.run(world.request(f"a{number}", "a", gpus=1))
    world.wait(world.request("b0", "b", gpus=4))
    return world


def test_q12_a_queue_above_its_quota_says_by_how_much() -> None:
    world = crowded(queue("a", 1), queue("b", 1))
    said = "3 of a quota of 1 GPU in use: other queues can reclaim what is above it"
    assert conditions(world, "a") == {"OverQuota": said}
    assert conditions(world, "b") == {}


def test_q03_q12_quotas_that_exceed_what_they_divide_are_told() -> None:
    said = "pods are served in order of arrival until quotas are reduced"
    world = crowded(queue("a", 3), queue("b", 4))
    assert conditions(world, "b") == {"Oversubscribed": f"root queues are guaranteed 7 of 4 GPUs: {said}"}
    world = crowded(queue("top", 4), queue("a", 3, parent="top"), queue("b", 4, parent="top"))
    assert conditions(world, "top") == {"Oversubscribed": f"child queues are guaranteed 7 of 4 GPUs: {said}"}
    assert conditions(world, "a") == {}


def test_q12_queues_that_cannot_be_used_say_why() -> None:
    world = crowded(queue("a", 4), queue("b", 4, parent="c"), queue("c", parent="b"), queue("d", parent="gone"))
    assert conditions(world, "b")["Invalid"].startswith("the parents form a cycle (b -> c -> b)")
    assert conditions(world, "d")["Orphan"].startswith("its parent queue gone does not exist")
    world.fleet.accounts.set_tree(QueueTree(world.fleet.accounts.tree.queues.values(), {QueueName("x"): "a fault"}))
    assert conditions(world, "x") == {"Invalid": "a fault"}
    assert conditions(world, "unknown") == {}
