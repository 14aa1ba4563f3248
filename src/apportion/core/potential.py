"""What the free places of a sliced GPU are worth.

Imagine one GPU on its own: requests of every shape keep coming at the same rate, slices end at random, and a
slice earns a little more than in proportion to its size, because large gaps are harder to come by. The value
of a layout is what the GPU will earn from there on. Putting a slice where the value falls least keeps the
fleet useful for whatever comes next, and needs no forecast of the mix.

The numbers come from value iteration in whole numbers, so they are the same on every machine.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from apportion.core.grid import Grid

Indices = npt.NDArray[np.int64]

_EARNING_POWER = 1.3
_OFFERED_LOAD = 2  # requests for twice what the GPU holds: places are contested
_RATE = 1024  # how often one slice ends, in the unit of all rates
_IMPATIENCE = 102  # what comes later counts less: 0.1 per lifetime
_SCALE = 10**6
_ROUNDS = 400
_MOST_LAYOUTS = 20_000


def layout_value(grid: Grid, state: int) -> int:
    """The value of a GPU in this state; only differences mean something."""
    table = _table(grid)
    known = table.get(grid.layout(state)) if table and _explained(grid, state) else None
    return known if known is not None else -_SCALE * unusable(grid, state)


def unusable(grid: Grid, state: int) -> int:
    """Free units that each profile could not use now, summed over the profiles: a coarser measure, which
    serves where units are blocked by something that is no legal slice."""
    free = grid.free_units(state)
    return sum(free - grid.room(state, shape) * shape.size for shape in grid.ordered)


def _explained(grid: Grid, state: int) -> bool:
    """True if the slices named in the state are all that takes its units."""
    layout, taken = grid.layout(state), 0
    for bit, (start, size) in enumerate(grid.intervals):
        if layout >> bit & 1:
            taken |= ((1 << size) - 1) << start
    return taken == state & grid.full


@lru_cache(maxsize=256)
def _table(grid: Grid) -> dict[int, int]:
    layouts = _layouts(grid)
    if layouts is None:
        return {}
    index = {layout: number for number, layout in enumerate(layouts)}
    shapes = sorted({(shape.size, shape.starts) for shape in grid.ordered})
    arrivals = [_arrivals(grid, index, size, starts) for size, starts in shapes]
    departures = _departures(grid, index)
    earnings = [round(_SCALE * size**_EARNING_POWER) for size, _ in shapes]
    mean_size = sum(size for size, _ in shapes)
    rate = _OFFERED_LOAD * grid.units * _RATE // mean_size
    divisor = rate * len(shapes) + _RATE * departures.shape[1] + _IMPATIENCE
    values = np.zeros(len(layouts), np.int64)
    for _ in range(_ROUNDS):
        total = _RATE * values[departures].sum(axis=1)
        for earning, following in zip(earnings, arrivals, strict=True):
            accepted = np.where(following >= 0, values[following] + earning, -1)
            total += rate * np.maximum(values, accepted.max(axis=1))
        values = total // divisor
    return {layout: int(values[number]) for layout, number in index.items()}


def _layouts(grid: Grid) -> list[int] | None:
    """Every set of slices that can lie side by side; None if there are too many to count."""
    masks = [((1 << size) - 1) << start for start, size in grid.intervals]
    found = {0: 0}
    todo = [0]
    while todo:
        layout = todo.pop()
        for bit, mask in enumerate(masks):
            after = layout | 1 << bit
            if not found[layout] & mask and after not in found:
                found[after] = found[layout] | mask
                todo.append(after)
        if len(found) > _MOST_LAYOUTS:
            return None
    return sorted(found)


def _arrivals(grid: Grid, index: dict[int, int], size: int, starts: tuple[int, ...]) -> Indices:
    """For each layout where a slice of this shape could lead; -1 where its place is taken."""
    rows = [[index.get(layout | 1 << grid.intervals.index((start, size)), -1) for start in starts] for layout in index]
    table = np.array(rows, np.int64)
    own = np.arange(len(index))[:, None]
    return np.where(table == own, -1, table)


def _departures(grid: Grid, index: dict[int, int]) -> Indices:
    """For each layout what each of its slices leaves when it ends, filled up with the layout itself."""
    bits = range(len(grid.intervals))
    rows = [[index[layout & ~(1 << bit)] for bit in bits if layout >> bit & 1] for layout in index]
    width = max(map(len, rows))
    return np.array([row + [number] * (width - len(row)) for number, row in enumerate(rows)], np.int64)
