"""MIG-100: a hundred GPUs, a stream of slices that come and go, and no queue.

One request per time slot; what does not fit is rejected. Lifetimes are exponential and long enough that the
requests would fill the GPUs exactly. After a warm-up the next requests are counted.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from apportion.apis import names
from apportion.apis.errors import InputError
from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.apis.request import Request, SliceRequest
from apportion.core import group_decision
from apportion.core.catalog import Catalog, Model, Profile
from apportion.core.fleet import Fleet, GpuFacts, NodeFacts
from apportion.core.grid import Grid
from apportion.core.groups import Group
from apportion.core.placement.slice_value import unusable
from apportion.core.policies import Policy

GPUS = 100
UNITS = 8
ARRIVALS = 12_000
WARM_UP_LIFETIMES = 4
PROFILES = (
    Profile("7g.80gb", 8, (0,)),
    Profile("4g.40gb", 4, (0,)),
    Profile("3g.40gb", 4, (0, 4)),
    Profile("2g.20gb", 2, (0, 2, 4)),
    Profile("1g.20gb", 2, (0, 2, 4, 6)),
    Profile("1g.10gb", 1, (0, 1, 2, 3, 4, 5, 6)),
)
MIXES = {
    "uniform": (1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    "skew-small": (0.05, 0.10, 0.10, 0.20, 0.25, 0.30),
    "skew-big": (0.30, 0.25, 0.20, 0.10, 0.10, 0.05),
    "bimodal": (0.30, 0.15, 0.05, 0.05, 0.15, 0.30),
}
LEAST_UNUSABLE = "least-unusable"
POLICY_NAMES = ("fragmentation", "first-fit", "best-fit", LEAST_UNUSABLE)

Progress = Callable[[int], None]


class LeastUnusable(Policy):
    """The published yardstick: the least rise of units that the profiles, all alike, could not use."""

    def slice_price(self, grid: Grid, before: int, after: int, start: int) -> int:
        rise = unusable(grid, after) - unusable(grid, before)
        return (rise * UNITS + grid.free_units(after)) * UNITS - start


def weights_of(mix: str) -> tuple[float, ...]:
    """A named mix, or six weights separated by commas."""
    if mix in MIXES:
        return _normalized(MIXES[mix])
    try:
        weights = tuple(float(part) for part in mix.split(","))
    except ValueError:
        weights = ()
    fine = len(weights) == len(PROFILES) and all(math.isfinite(w) and w >= 0 for w in weights) and sum(weights) > 0
    if not fine:
        fix = f"must be one of {', '.join(MIXES)}, or {len(PROFILES)} weights separated by commas"
        raise InputError("--mix", mix, fix, code="UnknownMix")
    return _normalized(weights)


def requests(mix: str, load: float = 1.0) -> int:
    """How many requests a run makes, its warm-up included."""
    return int(WARM_UP_LIFETIMES * _lifetime(weights_of(mix), load)) + ARRIVALS


def run(mix: str, seed: int, policy: str, progress: Progress = lambda _: None, load: float = 1.0) -> dict[str, Any]:
    """One run: acceptance by count, by units and of the largest profile, in percent, and its speed."""
    weights = weights_of(mix)
    lifetime = _lifetime(weights, load)
    warm_up = requests(mix, load) - ARRIVALS
    random = np.random.default_rng(seed)
    asked = random.choice(len(PROFILES), size=warm_up + ARRIVALS, p=weights)
    lasting = random.exponential(lifetime, size=warm_up + ARRIVALS)
    arrived, accepted = [0] * len(PROFILES), [0] * len(PROFILES)
    started = time.process_time()
    hundred = _Hundred(policy)
    for slot, (kind, duration) in enumerate(zip(asked.tolist(), lasting.tolist(), strict=True)):
        placed = hundred.request(slot, kind, duration)
        if slot >= warm_up:
            arrived[kind] += 1
            accepted[kind] += placed
        progress(1)
    seconds = time.process_time() - started
    return {
        "mix": mix,
        "seed": seed,
        "policy": policy,
        "acceptance": _percent(accepted, arrived, [1] * len(PROFILES)),
        "unit_acceptance": _percent(accepted, arrived, [profile.size for profile in PROFILES]),
        "largest_acceptance": _percent(accepted[:1], arrived[:1], [1]),
        "decisions_per_second": round((warm_up + ARRIVALS) / seconds, 1),
    }


class _Hundred:
    """The GPUs, each on a node of its own, and the slices that will end."""

    def __init__(self, policy: str) -> None:
        self._policy = LeastUnusable() if policy == LEAST_UNUSABLE else Policy(policy)
        self._ends: list[tuple[float, PodUID]] = []
        self._fleet = Fleet(Catalog())
        model = Model("mig100", ("mig100",), memory_mib=81920, units=UNITS, profiles=PROFILES)
        for number in range(GPUS):
            name = NodeName(f"node-{number:03}")
            self._fleet.set_node(NodeFacts(name, {names.MIG_CAPABLE_LABEL: "true"}, allocatable={"pods": GPUS}))
            self._fleet.set_gpus(name, [GpuFacts(DeviceUUID(f"gpu-{number:03}"), model, mig=True)], ready=True)

    def request(self, slot: int, kind: int, duration: float) -> bool:
        self._end_until(slot)
        want = SliceRequest("main", ("main",), PROFILES[kind].name, 0)
        request = Request(uid=PodUID(f"pod-{slot}"), namespace="mig100", name=f"pod-{slot}", slices=(want,))
        placed = isinstance(
            group_decision.decide(self._fleet, Group.of(request), self._policy, explained=False),
            group_decision.Statement,
        )
        if placed:
            heapq.heappush(self._ends, (slot + duration, request.uid))
        return placed

    def _end_until(self, slot: int) -> None:
        while self._ends and self._ends[0][0] <= slot:
            _, uid = heapq.heappop(self._ends)
            for piece in self._fleet.slices_of(uid):
                self._fleet.remove_slice(piece.key)
            self._fleet.remove_pod(uid)


def _lifetime(weights: Sequence[float], load: float) -> float:
    """Slots that a slice lasts on average, so that the requests ask for `load` times all units."""
    return load * GPUS * UNITS / sum(w * profile.size for w, profile in zip(weights, PROFILES, strict=True))


def _normalized(weights: Sequence[float]) -> tuple[float, ...]:
    return tuple(weight / sum(weights) for weight in weights)


def _percent(accepted: Sequence[int], arrived: Sequence[int], sizes: Sequence[int]) -> float | None:
    total = sum(count * size for count, size in zip(arrived, sizes, strict=True))
    taken = sum(count * size for count, size in zip(accepted, sizes, strict=True))
    return round(100 * taken / total, 3) if total else None
