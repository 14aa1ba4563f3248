"""What a part of a GPU is worth to the requests that usually come.

Fractions of a GPU are a cutting-stock problem: which sizes go together on one GPU so that the fewest GPUs are needed?
The linear program behind it prices every size (a size that combines well with others is cheap, one that leaves unusable
remainders is expensive), and a remainder is worth the best set of sizes that still fits into it. The program is solved
by column generation: start from GPUs cut into equal parts and add whichever cut the current prices favour, until none
is better.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MILLI = 1000
MICRO = 10**6
_GRAIN = 10  # milli-GPU per step: finer sizes are rounded up
_STEPS = MILLI // _GRAIN
_MOST_CUTS = 500
_TOLERANCE = 1e-9


def remainder_values(demand: Mapping[int, int]) -> list[int]:
    """For each remainder of 0 to 1000 milli its value in millionths of a GPU; `demand` is sizes with weights."""
    weights: dict[int, float] = {}
    for size, weight in demand.items():
        if 0 < size <= MILLI:
            steps = -(-size // _GRAIN)
            weights[steps] = weights.get(steps, 0.0) + weight
    if not weights:
        return [MICRO * milli // MILLI for milli in range(MILLI + 1)]
    sizes = np.array(sorted(weights), np.int64)
    fill, _ = _best_fill(sizes, _prices(sizes, np.array([weights[int(size)] for size in sizes])))
    return [round(MICRO * float(fill[milli // _GRAIN] / fill[_STEPS])) for milli in range(MILLI + 1)]


def _prices(sizes: npt.NDArray[np.int64], demand: Floats) -> Floats:
    """The price of each size. `cuts` is the basis of the program, one column per cut."""
    cuts: Floats = np.diag((_STEPS // sizes).astype(np.float64))
    prices: Floats = np.zeros(len(sizes))
    for _ in range(_MOST_CUTS):
        prices = np.asarray(np.linalg.solve(cuts.T, np.ones(len(sizes))), np.float64)
        fill, last = _best_fill(sizes, prices)
        if fill[_STEPS] <= 1.0 + _TOLERANCE:
            break
        cut = _cut_of(sizes, last)
        amounts = np.linalg.solve(cuts, demand)
        change = np.linalg.solve(cuts, cut)
        ratios = np.where(change > _TOLERANCE, amounts / np.where(change > _TOLERANCE, change, 1.0), np.inf)
        cuts[:, int(np.argmin(ratios))] = cut
    return prices


def _best_fill(sizes: npt.NDArray[np.int64], prices: Floats) -> tuple[Floats, list[int]]:
    """For each capacity the most expensive set of sizes that fits, and the size put in last (-1: none)."""
    fill = np.zeros(_STEPS + 1)
    last = [-1] * (_STEPS + 1)
    for capacity in range(1, _STEPS + 1):
        fill[capacity] = fill[capacity - 1]
        fitting = int(np.searchsorted(sizes, capacity, side="right"))
        if not fitting:
            continue
        options = fill[capacity - sizes[:fitting]] + prices[:fitting]
        best = int(np.argmax(options))
        if options[best] > fill[capacity] + _TOLERANCE:
            fill[capacity], last[capacity] = options[best], best
    return fill, last


def _cut_of(sizes: npt.NDArray[np.int64], last: list[int]) -> Floats:
    cut = np.zeros(len(sizes))
    capacity = _STEPS
    while capacity > 0:
        size = last[capacity]
        if size < 0:
            capacity -= 1
        else:
            cut[size] += 1.0
            capacity -= int(sizes[size])
    return cut
