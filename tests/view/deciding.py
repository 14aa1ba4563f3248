"""What the scheduler decides about one pod, for comparison."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from apportion.apis.pods import Pod
from apportion.apis.request import Request, parse_pod
from apportion.core import group_decision
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.explanations import explanation, messages
from apportion.core.explanations.queue_advice import QueueAdvice
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.ledger import GpuLedger
from apportion.core.policies import Policy
from apportion.core.queues.entitlements import Entitlements
from apportion.core.refusals import Refusal
from apportion.core.statement import Statement
from apportion.view.view import View


def decided(fleet: Fleet, request: Request) -> Statement | Refusal:
    mark = fleet.checkpoint()
    outcome = group_decision.decide(fleet, Group.of(request), Policy())
    fleet.rollback(mark)
    return outcome


def node_or_sentence(view: View, request: Request) -> tuple[str, str]:
    """As the scheduler tells it, with what is to be said about the queue."""
    fleet = view.fleet
    outcome = decided(fleet, request)
    if isinstance(outcome, Statement):
        return outcome.node, ""
    entitled = Entitlements(fleet)
    for waiting in view.waiting:
        if waiting.reading.request is not None and waiting.pod.uid not in fleet.pod_nodes:
            entitled.demand.add(waiting.reading.request)
    advice = QueueAdvice(fleet, Policy(), entitled, lambda: RunningGroups(fleet, int(time.time())))
    group = Group.of(request)
    if outcome.detail:
        return "", messages.of(outcome)
    told = advice.planned(group) or explanation.worked_out(advice.without_place(group, outcome))
    return "", messages.of(told)


def fits(fleet: Fleet, request: Request) -> bool:
    mark = fleet.checkpoint()
    found = isinstance(group_decision.decide(fleet, Group.of(request), Policy(), explained=False), Statement)
    fleet.rollback(mark)
    return found


def places(gpu: GpuLedger) -> list[tuple[int, int]]:
    return sorted((held.placement.start, held.placement.size) for held in gpu.slices.values())


def plain(request: Request) -> Request:
    """Without gates and volumes, which fallback does not look at."""
    rules = msgspec.structs.replace(request.rules, volume_claims=(), ephemeral=())
    return msgspec.structs.replace(request, gates=(), rules=rules)


def read(body: dict[str, Any]) -> Request:
    return parse_pod(msgspec.convert(body, Pod))
