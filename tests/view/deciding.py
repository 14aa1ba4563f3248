"""What the scheduler decides about one pod, and what core places, for comparison."""

from __future__ import annotations

import msgspec

from apportion.apis.pods import Pod
from apportion.apis.request import Request, parse_pod
from apportion.core import cycle, sentences
from apportion.core.fleet import Fleet
from apportion.core.ledger import Gpu
from apportion.core.plans import Plan
from apportion.core.policies import Policy
from apportion.view import adoption, verdicts
from apportion.view.view import View
from tests.view.objects import Json


def scheduler_decides(view: View, request: Request) -> tuple[str, str]:
    """The node, or the sentence."""
    if request.gated:
        outcome = cycle.decide(view.fleet, [request], Policy())
        return "", sentences.of(outcome)
    mark = view.fleet.checkpoint()
    try:
        if view.fleet.slices_of(request.uid):
            outcome = adoption.decide(view.fleet, request, view.claims.of_pod(request.uid), Policy())
        elif request.share is not None:
            outcome = verdicts.no_sharing(request)
        else:
            outcome = cycle.decide(view.fleet, [request], Policy())
            outcome = outcome if isinstance(outcome, Plan) else verdicts.Verdict(outcome, sentences.of(outcome))
    finally:
        view.fleet.rollback(mark)
    return (outcome.binds[0].node, "") if isinstance(outcome, Plan) else ("", outcome.sentence)


def fits(fleet: Fleet, request: Request) -> bool:
    mark = fleet.checkpoint()
    found = isinstance(cycle.decide(fleet, [request], Policy(), explained=False), Plan)
    fleet.rollback(mark)
    return found


def places(gpu: Gpu) -> list[tuple[int, int]]:
    return sorted((piece.start, piece.size) for piece in gpu.slices.values())


def plain(request: Request) -> Request:
    """Without gates and volumes, which fallback does not look at."""
    rules = msgspec.structs.replace(request.rules, claims=())
    return msgspec.structs.replace(request, gates=(), policy=None, rules=rules)


def read(body: Json) -> Request:
    return parse_pod(msgspec.convert(body, Pod))
