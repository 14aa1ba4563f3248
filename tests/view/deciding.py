"""What the scheduler decides about one pod, for comparison."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from apportion.apis.pods import Pod
from apportion.apis.request import Request, parse_pod
from apportion.core import group_decision
from apportion.core.evictions import room
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.explanations import messages
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.ledger import GpuLedger
from apportion.core.operations import Evict
from apportion.core.policies import Policy
from apportion.core.queues.entitlements import Entitlements
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


def room_is_made(fleet: Fleet, request: Request) -> int | None:
    """How many pods are evicted for it; None if none can be, and no place is about to become free."""
    entitled = Entitlements(fleet)
    entitled.demand.add(request)
    mark = fleet.checkpoint()
    running = RunningGroups(fleet, int(time.time()))
    statement = room.make_room(fleet, Group.of(request), Policy(), entitled.update(), running)
    fleet.rollback(mark)
    return None if statement is None else sum(isinstance(each, Evict) for each in statement.operations)


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
