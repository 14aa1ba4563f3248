"""The turn of a group: which of its pods are tried together, and what stops them before any node is looked at."""

from __future__ import annotations

from collections.abc import Sequence

from apportion.apis.request import Request
from apportion.core import gangs, gpu_usage, group_decision, refusals
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.node import CPU, MEMORY
from apportion.core.queues import gates, quantities
from apportion.core.queues.amounts import NOTHING, Amounts
from apportion.core.queues.gates import Closed, Gate
from apportion.core.queues.tree import Problem
from apportion.core.queues.turns import Turn
from apportion.core.reasons import Code
from apportion.core.refusals import Refusal

_PROBLEMS = {
    Problem.UNKNOWN: (Code.NO_QUEUE, "{}"),
    Problem.NOT_A_LEAF: (Code.NOT_A_LEAF, "{}"),
    Problem.NO_PARENT: (Code.BROKEN_QUEUE, "{} is below a queue that does not exist"),
    Problem.CYCLE: (Code.BROKEN_QUEUE, "{} is its own ancestor"),
}


def next_turn(fleet: Fleet, pods: Sequence[Request]) -> Turn[Group] | Refusal:
    """Of the pods of one group that wait, in the order of `gangs.age`."""
    first = pods[0]
    queues = {pod.queue for pod in pods}
    if len(queues) > 1:
        named = " and ".join(sorted(queues))
        return refusals.of_pod(first, Code.INCOMPLETE, f"the pods of the group name more than one queue: {named}")
    problem = fleet.accounts.tree.problem(first.queue)
    if problem is not None:
        code, words = _PROBLEMS[problem]
        return refusals.of_pod(first, code, words.format(first.queue))
    gang = fleet.gang_of(first)
    chosen = gangs.next_members(fleet, gang, pods)
    if chosen.missing:
        text = f"{chosen.missing} pods are missing from the minimum of {gang.minimum} of the group"
        return refusals.of_pod(first, Code.INCOMPLETE, text)
    group = Group(gang.key, chosen.members, len(chosen.members))
    order = (-group.priority, chosen.state, gang.created, first.namespace, first.name, gang.key)
    return Turn(first.queue, order, needed(fleet, chosen.members), group)


def stopped(fleet: Fleet, turn: Turn[Group]) -> Refusal | None:
    """By the queue. What is reserved for the group has passed already, and is charged."""
    first = turn.group.members[0]
    need = turn.need
    for reservation in group_decision.kept_for(fleet, turn.group):
        need = need.minus(reservation.charge.amounts) if reservation.charge is not None else need
    if need.gpu <= 0 and need.cpu <= 0 and need.memory <= 0:
        return None
    closed = gates.against(fleet.accounts, turn.queue, need, fixed=not first.preemptible)
    if closed is None:
        return None
    code = Code.OVER_LIMIT if closed.gate is Gate.LIMIT else Code.OVER_QUOTA
    return refusals.of_pod(first, code, _words(closed))


def needed(fleet: Fleet, members: Sequence[Request]) -> Amounts:
    """What pods that wait would count for together."""
    total = NOTHING
    for request in members:
        total = total.plus(wanted(fleet, request))
    return total


def wanted(fleet: Fleet, request: Request) -> Amounts:
    """What one would count for."""
    gpu = gpu_usage.wanted(fleet, request) or 0
    return Amounts(gpu, request.resources.get(CPU, 0), request.resources.get(MEMORY, 0))


def _words(closed: Closed) -> str:
    need, used, most = (quantities.said(closed.resource, each) for each in (closed.need, closed.used, closed.most))
    if closed.gate is Gate.LIMIT:
        return f"queue {closed.queue} would exceed its limit: {used} of {most} in use, {need} more requested"
    return (
        f"queue {closed.queue} would exceed its quota with pods that are not preemptible: "
        f"{used} of {most} in use by these, {need} more requested"
    )
