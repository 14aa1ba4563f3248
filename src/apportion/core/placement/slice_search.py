"""Several slices of one pod, placed together on the GPUs of one node.

First the cheap way: largest slice first, each on the place that the policy ranks first, then on the place that blocks
the fewest others. If both fail, the search becomes exact. A GPU can take certain maximal sets of slices; going from GPU
to GPU it keeps every set of slices that may still be left to place, drops those that contain another one, and those
that exceed an upper bound for the remaining GPUs. If a legal combination exists it is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from apportion.core.grid import Grid, Shape
from apportion.core.placement.slice_value import layout_value

Position = tuple[int, int]  # which GPU, which start
Cost = Callable[[int, int, int, Shape, int], tuple[int, ...]]  # GPU, state before, state after, shape, start
Counts = tuple[int, ...]  # how many of each wanted profile
Table = npt.NDArray[np.int64]

_DOMINANCE_UP_TO = 3000  # more candidates than this are not compared with each other


def arrange(gpus: Sequence[tuple[Grid, int]], wants: Sequence[str], cost: Cost) -> list[Position] | None:
    """A position for each want, in the order of the wants; None if there is no legal combination."""
    if len(wants) > 1 and not _may_fit(gpus, wants):
        return None
    positions = _greedily(gpus, wants, cost)
    if positions is not None or len(wants) == 1:
        return positions
    return _greedily(gpus, wants, _careful(gpus)) or _exactly(gpus, wants, cost)


def fits(gpus: Sequence[tuple[Grid, int]], wants: Sequence[str]) -> bool:
    return _fits(tuple(gpus), tuple(wants))


@lru_cache(maxsize=65536)
def _fits(gpus: tuple[tuple[Grid, int], ...], wants: tuple[str, ...]) -> bool:
    """Nodes in the same state give the same answer, and large fleets have many of these."""
    return arrange(gpus, wants, _careful(gpus)) is not None


def first_place(gpu: int, _before: int, _after: int, _shape: Shape, start: int) -> tuple[int, ...]:
    return (gpu, start)


def _may_fit(gpus: Sequence[tuple[Grid, int]], wants: Sequence[str]) -> bool:
    """Each profile on its own would fit often enough."""
    for profile in set(wants):
        room = sum(grid.room(state, shape) for grid, state in gpus if (shape := grid.shape(profile)))
        if room < wants.count(profile):
            return False
    return True


def _careful(gpus: Sequence[tuple[Grid, int]]) -> Cost:
    """What costs least of the free places' value: the greedy way that hardly ever needs the exact one."""

    def cost(gpu: int, before: int, after: int, _shape: Shape, _start: int) -> tuple[int, ...]:
        grid = gpus[gpu][0]
        return (layout_value(grid, before) - layout_value(grid, after),)

    return cost


def _greedily(gpus: Sequence[tuple[Grid, int]], wants: Sequence[str], cost: Cost) -> list[Position] | None:
    states = [state for _, state in gpus]
    positions: list[Position | None] = [None] * len(wants)
    for number in _largest_first(gpus, wants):
        best: tuple[tuple[int, ...], int, int, int] | None = None
        for index, (grid, _) in enumerate(gpus):
            shape = grid.shape(wants[number])
            if shape is None:
                continue
            for start in grid.places(states[index], shape):
                after = grid.put(states[index], shape, start)
                option = (cost(index, states[index], after, shape, start), index, start, after)
                if best is None or option < best:
                    best = option
        if best is None:
            return None
        _, index, start, states[index] = best
        positions[number] = (index, start)
    return [position for position in positions if position is not None]


def _largest_first(gpus: Sequence[tuple[Grid, int]], wants: Sequence[str]) -> list[int]:
    """Large before small, and of one size what has the fewest places before the others."""
    keys = {}
    for profile in set(wants):
        shapes = [shape for grid, _ in gpus if (shape := grid.shape(profile))]
        largest = max((shape.size for shape in shapes), default=0)
        keys[profile] = (-largest, max((shape.most for shape in shapes), default=0), profile)
    return sorted(range(len(wants)), key=lambda number: (keys[wants[number]], number))


def _exactly(gpus: Sequence[tuple[Grid, int]], wants: Sequence[str], cost: Cost) -> list[Position] | None:
    profiles = tuple(sorted(set(wants)))
    fillings = _divide(gpus, profiles, [wants.count(profile) for profile in profiles])
    if fillings is None:
        return None
    waiting = {profile: [n for n, want in enumerate(wants) if want == profile] for profile in profiles}
    positions: dict[int, Position] = {}
    for index, filling in enumerate(fillings):
        grid, state = gpus[index]
        members = [profile for profile, count in zip(profiles, filling, strict=True) for _ in range(count)]
        for profile, start in _cheapest(grid, state, members, index, cost):
            positions[waiting[profile].pop(0)] = (index, start)
    return [positions[number] for number in range(len(wants))]


def _divide(gpus: Sequence[tuple[Grid, int]], profiles: tuple[str, ...], counts: list[int]) -> list[Counts] | None:
    """How many of each profile go to each GPU; None if they do not all fit."""
    left: Table = np.array([counts], np.int64)
    steps: list[tuple[Table, Table, Table]] = []
    blocked = _least_blocked(gpus, profiles)
    rooms = _rooms(gpus, profiles)
    if not (left @ blocked <= rooms[0]).all():
        return None
    for index, (grid, state) in enumerate(gpus):
        options: Table = np.array(maximal_fillings(grid, state, profiles), np.int64)
        following = np.maximum(0, left[:, None, :] - options[None, :, :]).reshape(-1, len(profiles))
        following, origin = np.unique(following, axis=0, return_index=True)
        possible = np.flatnonzero((following @ blocked <= rooms[index + 1]).all(axis=1))
        keep = possible[_minimal(following[possible])]
        steps.append((left, origin[keep] // len(options), options[origin[keep] % len(options)]))
        left = following[keep]
        if not len(left):
            return None
        if not left.any(axis=1).all():
            return _trace_back(steps, left, len(gpus))
    return None


def _trace_back(steps: list[tuple[Table, Table, Table]], left: Table, gpus: int) -> list[Counts]:
    """The way to the state in which nothing is left; GPUs that were not needed take nothing."""
    row = int(np.flatnonzero(~left.any(axis=1))[0])
    nothing = (0,) * left.shape[1]
    parts: list[Counts] = [nothing] * gpus
    for index in range(len(steps) - 1, -1, -1):
        before, parents, options = steps[index]
        parent = int(parents[row])
        taken = np.minimum(before[parent], options[row])
        parts[index] = tuple(int(count) for count in taken)
        row = parent
    return parts


def _minimal(left: Table) -> Table:
    """Rows that contain no other row; the others need not be considered."""
    order = np.argsort(left.sum(axis=1), kind="stable")
    if len(left) > _DOMINANCE_UP_TO:
        return order
    kept: list[int] = []
    for number in order:
        if not kept or not (left[kept] <= left[number]).all(axis=1).any():
            kept.append(int(number))
    return np.array(kept, np.int64)


def _rooms(gpus: Sequence[tuple[Grid, int]], profiles: tuple[str, ...]) -> list[Table]:
    """For each GPU what it and the later ones could take of each profile alone; nothing after the last."""
    total = np.zeros(len(profiles), np.int64)
    rooms: list[Table] = [total]
    for grid, state in reversed(gpus):
        shapes = [grid.shape(profile) for profile in profiles]
        total = total + np.array([grid.room(state, shape) if shape else 0 for shape in shapes], np.int64)
        rooms.append(total)
    return rooms[::-1]


def _least_blocked(gpus: Sequence[tuple[Grid, int]], profiles: tuple[str, ...]) -> Table:
    """Row q, column p: how many places of p lie within a slice of q at the least, wherever it goes.

    No other slice can take these away too, so they add up. What has a limit per GPU beside its places (such as +me)
    may leave places that it cannot use anyway, so others are not counted against it.
    """
    table = np.zeros((len(profiles), len(profiles)), np.int64)
    for row, q in enumerate(profiles):
        for column, p in enumerate(profiles):
            table[row, column] = 1 if q == p else min(_blocked(grid, q, p) for grid, _ in gpus)
    return table


@lru_cache(maxsize=4096)
def _blocked(grid: Grid, q: str, p: str) -> int:
    taker, other = grid.shape(q), grid.shape(p)
    if taker is None or other is None or other.most < len(other.starts):
        return 0
    return min(sum(mask & place == place for place in other.masks) for mask in taker.masks)


@lru_cache(maxsize=8192)
def maximal_fillings(grid: Grid, state: int, profiles: tuple[str, ...]) -> tuple[Counts, ...]:
    """The sets of slices of these profiles that fit on a GPU and leave no room for another one of them."""
    found: set[Counts] = set()
    nothing = (0,) * len(profiles)
    for number, profile in enumerate(profiles):
        shape = grid.shape(profile)
        for start in grid.places(state, shape) if shape else ():
            assert shape is not None
            for filling in maximal_fillings(grid, grid.put(state, shape, start), profiles):
                found.add((*filling[:number], filling[number] + 1, *filling[number + 1 :]))
    return tuple(sorted(_undominated(found))) if found else (nothing,)


def _undominated(fillings: Iterable[Counts]) -> list[Counts]:
    kept: list[Counts] = []
    for filling in sorted(fillings, key=sum, reverse=True):
        if not any(all(more >= less for more, less in zip(other, filling, strict=True)) for other in kept):
            kept.append(filling)
    return kept


def _cheapest(grid: Grid, state: int, members: list[str], index: int, cost: Cost) -> list[tuple[str, int]]:
    """Places for one GPU's slices, so that the policy likes what they leave best."""
    reached: dict[int, list[tuple[str, int]]] = {state: []}
    for profile in members:
        shape = grid.shape(profile)
        assert shape is not None
        following: dict[int, list[tuple[str, int]]] = {}
        for here, path in reached.items():
            for start in grid.places(here, shape):
                following.setdefault(grid.put(here, shape, start), [*path, (profile, start)])
        reached = following
    options = []
    for here, path in reached.items():
        last = grid.shape(path[-1][0]) if path else None
        price = cost(index, state, here, last, path[-1][1]) if last else ()
        options.append((price, path))
    return min(options)[1]
