"""How many decisions a second: rows of prices beside one pass over all nodes per pod.

Both take the same pods in the same order to the same nodes; the pass is the arithmetic of the rows over all
nodes. Copies of the trace's nodes (and as many times its pods) show what a larger fleet costs. All take
turns, so that whatever else the machine does slows them alike; seconds are of CPU time.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from apportion.core import group_decision
from apportion.core.placement.node_table import NodeTable
from apportion.core.placement.price_cache import Ranking
from apportion.lab import openb
from apportion.lab.trace import Trace

ROWS, EVERY_NODE = "rows", "every-node"
_TURNS = 20

Progress = Callable[[int], None]


def race(
    trace: Trace,
    seed: int,
    contenders: Sequence[tuple[str, int]],
    limit: int | None = None,
    progress: Progress = lambda _: None,
) -> list[dict[str, Any]]:
    """Decide about the trace's pods by each method on so many copies; equal fingerprints are equal decisions."""
    running = [_Contender(trace, seed, method, copies, limit) for method, copies in contenders]
    for turn in range(_TURNS):
        for contender in running:
            contender.take_turn(turn, progress)
    return [contender.result() for contender in running]


class _Contender:
    """One method on a fleet of its own."""

    def __init__(self, trace: Trace, seed: int, method: str, copies: int, limit: int | None) -> None:
        arrival = trace.arrival(seed)
        requests = openb.requests_of(trace)
        policy = openb.policy_of(openb.OURS, requests)
        self._about = {"method": method, "variant": trace.variant, "seed": seed, "copies": copies}
        self._fleet = openb.fleet_of(trace, arrival, copies)
        self._pods = list(openb.arriving(requests, arrival.pods[:limit] * copies))
        policy.prepare(self._fleet)
        self._ranking = Ranking(NodeTable(self._fleet), policy, every_node=method == EVERY_NODE)
        self._places: list[str] = []
        self._seconds = 0.0

    def take_turn(self, turn: int, progress: Progress) -> None:
        count = len(self._pods)
        pods = self._pods[count * turn // _TURNS : count * (turn + 1) // _TURNS]
        started = time.process_time()
        for pod in pods:
            found = self._ranking.best(self._fleet, pod)
            if found is not None:
                group_decision.assume(self._fleet, pod, found)
            self._places.append(found.node if found is not None else "-")
        self._seconds += time.process_time() - started
        progress(len(pods))

    def result(self) -> dict[str, Any]:
        return {
            **self._about,
            "nodes": len(self._fleet.nodes),
            "decisions": len(self._places),
            "placed": sum(place != "-" for place in self._places),
            "fingerprint": hashlib.sha256("\n".join(self._places).encode()).hexdigest()[:16],
            "decisions_per_second": round(len(self._places) / self._seconds, 1) if self._seconds else None,
        }
