"""What order and fair shares cost: pods of many queues wait for a cluster that has a place for each, in one round."""

from __future__ import annotations

import gc
import time
from typing import Any

from apportion.apis.identities import QueueName
from apportion.apis.request import Request
from apportion.core import group_decision, group_turns
from apportion.core.fleet import Fleet
from apportion.core.policies import Policy
from apportion.core.queues.entitlements import Entitlements
from apportion.core.queues.tree import Allowance, Queue
from apportion.core.queues.turns import Turn
from apportion.core.statement import Statement
from apportion.lab import gpu_nodes
from apportion.lab.gpu_nodes import GPUS, pod

DEPARTMENTS = 10

Run = dict[str, Any]


def run(pods: int, queues: int) -> Run:
    """Pods of one GPU each. `order_seconds` are spent on shares and turns, `seconds` on everything."""
    fleet = _fleet(-(-pods // GPUS), queues)
    pending = [pod(f"pod-{number:06}", _queue(number % queues), 1) for number in range(pods)]
    entitlements, policy = Entitlements(fleet), Policy()
    gc.collect()
    gc.freeze()  # as the scheduler does once it has read the cluster
    try:
        return {"pods": pods, "queues": queues, **_timed(fleet, pending, entitlements, policy)}
    finally:
        gc.unfreeze()


def _timed(fleet: Fleet, pending: list[Request], entitlements: Entitlements, policy: Policy) -> Run:
    started = time.perf_counter()
    for request in pending:
        entitlements.demand.add(request)
    turns = entitlements.turns(())
    for request in pending:
        turn = group_turns.next_turn(fleet, (request,))
        assert isinstance(turn, Turn)
        turns.add(turn)
    order = time.perf_counter() - started
    first, placed = 0.0, 0
    while True:
        before = time.perf_counter()
        turn_now = turns.next()
        order += time.perf_counter() - before
        if turn_now is None:
            break
        if group_turns.stopped(fleet, turn_now) is None:
            outcome = group_decision.decide(fleet, turn_now.group, policy, explained=False)
            placed += isinstance(outcome, Statement)
        before = time.perf_counter()
        for uid in turn_now.group.uids:
            entitlements.demand.remove(uid)
        turns.changed(turn_now.queue)
        order += time.perf_counter() - before
        first = first or time.perf_counter() - started
    seconds = time.perf_counter() - started
    return {
        "placed": placed,
        "seconds": round(seconds, 3),
        "order_seconds": round(order, 3),
        "first_seconds": round(first, 3),
    }


def _fleet(nodes: int, queues: int) -> Fleet:
    """Queues with different quotas and weights, in departments."""
    departments = [Queue(QueueName(f"department-{number}")) for number in range(DEPARTMENTS)]
    teams = [
        Queue(
            _queue(number),
            departments[number % DEPARTMENTS].name,
            gpu=Allowance(quota=1000 * (number % 3), weight=1 + number % 2),
        )
        for number in range(queues)
    ]
    return gpu_nodes.fleet(nodes, [*departments, *teams])


def _queue(number: int) -> QueueName:
    return QueueName(f"queue-{number:04}")
