"""The turn of a group: which of its pods are tried together, and what stops them before any node is looked at."""

from __future__ import annotations

from collections.abc import Sequence

from apportion.apis.identities import QueueName
from apportion.apis.request import Request
from apportion.core import gangs, gpu_usage, group_decision
from apportion.core.explanations import queue_reasons
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.node import CPU, MEMORY
from apportion.core.queues import charging, gates
from apportion.core.queues.amounts import NOTHING, Amounts
from apportion.core.queues.turns import Turn
from apportion.core.refusals import Refusal


def next_turn(fleet: Fleet, pods: Sequence[Request]) -> Turn[Group] | Refusal:
    """Of the pods of one group that wait, in the order of `gangs.age`."""
    first = pods[0]
    queues = {pod.queue for pod in pods}
    if len(queues) > 1:
        return queue_reasons.several_queues(first, queues)
    unusable = queue_reasons.unusable(first, fleet.accounts.tree)
    if unusable is not None:
        return unusable
    gang = fleet.gang_of(first)
    chosen = gangs.next_members(fleet, gang, pods)
    if chosen.missing:
        return queue_reasons.incomplete(first, gangs.incomplete(fleet, gang, pods))
    group = Group(gang.key, chosen.members, len(chosen.members))
    order = (-group.priority, chosen.state, gang.created, first.namespace, first.name, gang.key)
    return Turn(first.queue, order, needed(fleet, chosen.members), group)


def outdated(fleet: Fleet, turn: Turn[Group]) -> bool:
    """Some of its pods have a node by now: another process leads, or led, and placed them."""
    return not fleet.pod_nodes.keys().isdisjoint(turn.group.uids)


def stopped(fleet: Fleet, turn: Turn[Group]) -> Refusal | None:
    """By the queue. What is reserved for the group is charged already, but may be too much by now: others were to be
    evicted for somebody else, and stay."""
    first = turn.group.members[0]
    kept = [each.charge for each in group_decision.kept_for(fleet, turn.group) if each.charge is not None]
    need = needed(fleet, turn.group.members)
    closed = gates.against(fleet.accounts, turn.queue, need, fixed=not first.preemptible, kept=kept)
    return queue_reasons.closed(first, closed) if closed is not None else None


def awaited_evictions(fleet: Fleet, turn: Turn[Group]) -> tuple[QueueName, int] | None:
    """A queue that would exceed its limit while pods run that are to be evicted, and how many these are. Nobody is
    charged for them any more, but the cluster does not show that they are evicted, and their plan may fail."""
    if not fleet.releasing:
        return None
    accounts, need = fleet.accounts, still_needed(fleet, turn.group)
    path = [accounts.tree.queues[name] for name in accounts.tree.path(turn.queue)]
    asked = [number for number, amount in enumerate(turn.need) if amount > 0]
    if not any(queue.allowances[number].limit >= 0 for queue in path for number in asked):
        return None
    pods = [fleet.nodes[fleet.pod_nodes[uid]].pods[uid] for uid in fleet.releasing if not fleet.terminating(uid)]
    for queue in path:
        below = [charging.held(fleet, pod) for pod in pods if queue.name in accounts.tree.path(pod.queue)]
        for number in asked:
            running = sum(amounts[number] for amounts in below)
            used = accounts.used(queue.name)[number] + max(need[number], 0)
            if running and 0 <= queue.allowances[number].limit < used + running:
                return queue.name, len(below)
    return None


def still_needed(fleet: Fleet, group: Group) -> Amounts:
    """What a group that waits would count for beside what is reserved for it."""
    need = needed(fleet, group.members)
    for reservation in group_decision.kept_for(fleet, group):
        need = need.minus(reservation.charge.amounts) if reservation.charge is not None else need
    return need


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
