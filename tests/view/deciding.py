"""What the scheduler decides about one pod, for comparison."""

from __future__ import annotations

from typing import Any

import msgspec

from apportion.apis.pods import Pod
from apportion.apis.request import Request, parse_pod
from apportion.core import group_decision
from apportion.core.explanations import messages
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.ledger import GpuLedger
from apportion.core.policies import Policy
from apportion.core.refusals import Refusal
from apportion.core.statement import Statement


def decided(fleet: Fleet, request: Request) -> Statement | Refusal:
    mark = fleet.checkpoint()
    outcome = group_decision.decide(fleet, Group.of(request), Policy())
    fleet.rollback(mark)
    return outcome


def node_or_sentence(fleet: Fleet, request: Request) -> tuple[str, str]:
    outcome = decided(fleet, request)
    return (outcome.node, "") if isinstance(outcome, Statement) else ("", messages.of(outcome))


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
