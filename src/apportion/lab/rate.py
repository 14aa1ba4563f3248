"""How many decisions a second: rows of prices beside one pass over all nodes per pod.

Both take the same pods in the same order to the same nodes; the pass is the arithmetic of the rows over every
node. Copies of the trace's nodes (and as many times its pods) show what a larger fleet costs.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

from apportion.apis.request import Request
from apportion.core import cycle
from apportion.core.board import Board
from apportion.core.fleet import Fleet
from apportion.core.ranking import Ranking
from apportion.lab import openb
from apportion.lab.trace import Trace

ROWS, EVERY_NODE = "rows", "every-node"

Progress = Callable[[int], None]


def run(
    trace: Trace,
    seed: int,
    method: str,
    copies: int = 1,
    limit: int | None = None,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Decide about the trace's pods; `placed` tells whether two methods agreed."""
    arrival = trace.arrival(seed)
    requests = openb.requests_of(trace)
    order = arrival.pods[:limit] * copies
    fleet = openb.fleet_of(trace, arrival, copies)
    policy = openb.policy_of(openb.OURS, requests)
    pods = list(openb.arriving(requests, order))
    policy.prepare(fleet)
    ranking = Ranking(Board(fleet), policy, every_node=method == EVERY_NODE)
    started = time.perf_counter()
    places = [_place(fleet, ranking, pod, progress) for pod in pods]
    seconds = time.perf_counter() - started
    return {
        "method": method,
        "variant": trace.variant,
        "seed": seed,
        "copies": copies,
        "nodes": len(trace.nodes) * copies,
        "decisions": len(pods),
        "placed": sum(place is not None for place in places),
        "fingerprint": _fingerprint(places),
        "decisions_per_second": round(len(pods) / seconds, 1),
    }


def _place(fleet: Fleet, ranking: Ranking, pod: Request, progress: Progress) -> str | None:
    progress(1)
    seat = ranking.best(pod)
    if seat is None:
        return None
    cycle.assume(fleet, pod, seat)
    return seat.node


def _fingerprint(places: list[str | None]) -> str:
    return hashlib.sha256("\n".join(place or "-" for place in places).encode()).hexdigest()[:16]
