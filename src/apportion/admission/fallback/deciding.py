"""Keep, fall back, wait, pend or refuse: one pod against the fleet as it is. Pure.

Tier by tier, the wanted one first: a tier that has room is taken. A tier that only promises occupy is waited for, since
a promise may expire. A tier that pods occupy is passed over. Below the last tier there is nothing to wait for: the pod
keeps that tier and pends, or is refused where its owner prefers that.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from apportion.admission.fallback.occupancy import Occupancy, devices, pieces
from apportion.admission.fallback.promises import Promise, kind_of
from apportion.admission.fallback.tiers import REJECT, FallbackOptions
from apportion.apis.identities import NO_NODE, NodeName, PodUID
from apportion.apis.request import Request


class FallbackOutcome(enum.Enum):
    """How a pod is answered; WAIT is no answer yet."""

    PLACED = "placed"
    PEND = "pend"
    REJECT = "reject"
    WAIT = "wait"
    RETRY = "retry"


@dataclass
class Case:
    """One pod under review. `request(n)` is what it asks for n steps down."""

    id: str
    namespace: str
    request: Callable[[int], Request]
    steps: int
    options: FallbackOptions
    generate_name: str = ""
    dry_run: bool = False
    stale: dict[PodUID, NodeName] = field(default_factory=dict)
    """Pods, by their node, that no longer exist on the server: nothing is decided until the informer shows it too."""


@dataclass(frozen=True)
class Decision:
    """`steps` down; `promise` must be written before the answer is given."""

    outcome: FallbackOutcome
    steps: int = 0
    promise: Promise | None = None
    node: NodeName = NO_NODE
    trouble: str = ""
    """For RETRY: the reason, unless promises hold the devices."""


WAITING = Decision(FallbackOutcome.WAIT)


def judge(occupancy: Occupancy, case: Case, now: float, *, private: bool = False) -> Decision:
    """Decide. `private`: what is promised counts for the namespace of the pod only."""
    for steps in range(case.steps + 1):
        request = case.request(steps)
        statement = occupancy.place(request)
        if statement is not None:
            node, held = statement.node, pieces(statement)
            statement.undo(occupancy.fleet)
            if case.dry_run:
                return Decision(FallbackOutcome.PLACED, steps, node=node)
            promise = Promise(
                case.id,
                now,
                kind(case, request),
                node,
                steps,
                dict(request.resources),
                held,
                case.namespace,
                private=private,
            )
            return Decision(FallbackOutcome.PLACED, steps, promise, node)
        undecided = steps < case.steps or case.options.at_end == REJECT
        if undecided and occupancy.fits_but_for_promises(request):
            return WAITING
    if case.options.at_end == REJECT:
        return Decision(FallbackOutcome.REJECT, case.steps)
    return Decision(FallbackOutcome.PEND, case.steps)


def kind(case: Case, request: Request) -> str:
    return kind_of(request.namespace, request.owner or "", case.generate_name or request.name, devices(request))
