"""How long plans of evictions take: a queue that uses the whole cluster, and another that is entitled to half of it."""

from __future__ import annotations

import gc
import time
from typing import Any

from apportion.apis.identities import QueueName
from apportion.core.evictions import room
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.fleet import Fleet
from apportion.core.group_turns import needed
from apportion.core.groups import Gang, Group
from apportion.core.operations import Evict
from apportion.core.policies import Policy
from apportion.core.queues import shares, totals
from apportion.core.queues.tree import Allowance, Queue
from apportion.lab import gpu_nodes
from apportion.lab.gpu_nodes import GPUS, pod

HOLDER, TAKER = QueueName("a"), QueueName("b")

Run = dict[str, Any]


def run(nodes: int, gang: int = 0) -> Run:
    """Plan the reclaim of half of the GPUs by pods of one GPU, or by one gang of pods with all GPUs of a node."""
    fleet = _full(nodes)
    groups = _pending(nodes, gang)
    for group in groups:
        fleet.set_gang(Gang(group.key, group.minimum, created=group.created))
    total = totals.total(fleet)
    asked = needed(fleet, [member for group in groups for member in group.members])
    demand = {HOLDER: fleet.accounts.used(HOLDER), TAKER: asked}
    fair = shares.compute(fleet.accounts.tree, total, demand)
    policy = Policy()
    gc.collect()
    gc.freeze()  # as the scheduler does once it has read the cluster
    try:
        return {"nodes": nodes, "gang": gang, **_timed(fleet, groups, policy, fair)}
    finally:
        gc.unfreeze()


def _timed(fleet: Fleet, groups: list[Group], policy: Policy, fair: shares.Shares) -> Run:
    started = time.perf_counter()
    running = RunningGroups(fleet)
    reading = time.perf_counter() - started
    plans, victims = [], 0
    for group in groups:
        started = time.perf_counter()
        statement = room.make_room(fleet, group, policy, fair, running)
        plans.append(time.perf_counter() - started)
        victims += sum(isinstance(each, Evict) for each in statement.operations) if statement is not None else 0
    return {
        "plans": len(plans),
        "victims": victims,
        "seconds": round(reading + sum(plans), 6),
        "reading_seconds": round(reading, 6),
        "plan_seconds": [round(each, 6) for each in plans],
    }


def _full(nodes: int) -> Fleet:
    """Every GPU is used by a pod of its own, of one queue."""
    fleet = gpu_nodes.fleet(nodes, (Queue(name, gpu=Allowance(quota=0)) for name in (HOLDER, TAKER)))
    for number, node in enumerate(list(fleet)):
        for index, uuid in enumerate(node.gpus):
            fleet.add_pod(pod(f"holder-{number * GPUS + index:06}", HOLDER, 1), node.name, (uuid,))
    return fleet


def _pending(nodes: int, gang: int) -> list[Group]:
    if gang:
        members = [pod(f"member-{number:05}", TAKER, GPUS, group="gang") for number in range(gang)]
        return [Group.of(*members, key=members[0].group_key)]
    return [Group.of(pod(f"taker-{number:06}", TAKER, 1)) for number in range(nodes * GPUS // 2)]
