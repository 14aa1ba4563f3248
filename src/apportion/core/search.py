"""Several slices of one pod, placed together on the GPUs of one node.

First the cheap way: largest slice first, each on the place that the policy likes best. Where that runs into
a wall the search goes through all GPUs and all maximal ways to fill each one; if a legal combination exists
it is found. Only maximal fillings need a look: whatever is left over then is a part of what would be left
over otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from apportion.core.grid import Grid, Shape

Seat = tuple[int, int]  # which GPU, which start
Cost = Callable[[int, int, int, Shape, int], tuple[int, ...]]  # GPU, state before, state after, shape, start
Counts = tuple[tuple[str, int], ...]

_GIVE_UP_AFTER = 200_000


def arrange(gpus: Sequence[tuple[Grid, int]], wants: Sequence[str], cost: Cost) -> list[Seat] | None:
    """A seat for each want, in the order of the wants; None if there is no legal combination."""
    if not wants:
        return []
    return _greedily(gpus, wants, cost) or (_exhaustively(gpus, wants, cost) if len(wants) > 1 else None)


def fits(gpus: Sequence[tuple[Grid, int]], wants: Sequence[str]) -> bool:
    return arrange(gpus, wants, first_place) is not None


def first_place(gpu: int, _before: int, _after: int, _shape: Shape, start: int) -> tuple[int, ...]:
    return (gpu, start)


def _greedily(gpus: Sequence[tuple[Grid, int]], wants: Sequence[str], cost: Cost) -> list[Seat] | None:
    states = [state for _, state in gpus]
    seats: list[Seat | None] = [None] * len(wants)
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
        seats[number] = (index, start)
    return [seat for seat in seats if seat is not None]


def _largest_first(gpus: Sequence[tuple[Grid, int]], wants: Sequence[str]) -> list[int]:
    sizes = {}
    for profile in set(wants):
        shapes = [shape for grid, _ in gpus if (shape := grid.shape(profile))]
        sizes[profile] = max((shape.size for shape in shapes), default=0), -min((s.most for s in shapes), default=0)
    return sorted(range(len(wants)), key=lambda number: (*(-x for x in sizes[wants[number]]), wants[number], number))


def _exhaustively(gpus: Sequence[tuple[Grid, int]], wants: Sequence[str], cost: Cost) -> list[Seat] | None:
    counts = tuple(sorted((profile, wants.count(profile)) for profile in set(wants)))
    chosen = _Search(gpus).run(counts)
    if chosen is None:
        return None
    seats: list[Seat | None] = [None] * len(wants)
    for index, filling in enumerate(chosen):
        grid, state = gpus[index]
        for profile, start in _cheapest(grid, state, filling, index, cost):
            number = next(n for n, want in enumerate(wants) if want == profile and seats[n] is None)
            seats[number] = (index, start)
    return [seat for seat in seats if seat is not None]


class _Search:
    """Depth first over the GPUs; a dead end is remembered by what was still to place."""

    def __init__(self, gpus: Sequence[tuple[Grid, int]]) -> None:
        self.gpus = gpus
        self.dead: set[tuple[int, Counts]] = set()

    def run(self, counts: Counts) -> list[Counts] | None:
        return self._from(0, counts)

    def _from(self, index: int, left: Counts) -> list[Counts] | None:
        if not left:
            return [()] * (len(self.gpus) - index)
        if index == len(self.gpus) or (index, left) in self.dead or not self._could_fit(index, left):
            return None
        grid, state = self.gpus[index]
        for filling in maximal_fillings(grid, state, left):
            rest = self._from(index + 1, _minus(left, filling))
            if rest is not None:
                return [filling, *rest]
        self.dead.add((index, left))
        if len(self.dead) > _GIVE_UP_AFTER:  # pragma: no cover  a bound for the absurd, far beyond real nodes
            return None
        return None

    def _could_fit(self, index: int, left: Counts) -> bool:
        rest = self.gpus[index:]
        for profile, count in left:
            room = sum(grid.room(state, shape) for grid, state in rest if (shape := grid.shape(profile)))
            if room < count:
                return False
        return True


def _minus(left: Counts, filling: Counts) -> Counts:
    taken = dict(filling)
    return tuple((p, count - taken.get(p, 0)) for p, count in left if count > taken.get(p, 0))


@lru_cache(maxsize=65536)
def maximal_fillings(grid: Grid, state: int, wants: Counts) -> tuple[Counts, ...]:
    """The largest parts of the wants that fit on a GPU together, those that fill it most first."""
    found = _all_fillings(grid, state, wants)
    maximal = [filling for filling in found if not any(other != filling and _covers(other, filling) for other in found)]
    return tuple(sorted((tuple(f) for f in maximal), key=lambda f: (-_units(grid, f), f)))


def _all_fillings(grid: Grid, state: int, wants: Counts) -> set[Counts]:
    seen: set[tuple[int, Counts]] = set()
    found: set[Counts] = set()
    todo: list[tuple[int, Counts, Counts]] = [(state, wants, ())]
    while todo:
        here, left, placed = todo.pop()
        if (here, placed) in seen:
            continue
        seen.add((here, placed))
        stuck = True
        for profile, _ in left:
            shape = grid.shape(profile)
            for start in grid.places(here, shape) if shape else ():
                stuck = False
                assert shape is not None
                todo.append((grid.put(here, shape, start), _minus(left, ((profile, 1),)), _plus(placed, profile)))
        if stuck:
            found.add(placed)
    return found


def _plus(placed: Counts, profile: str) -> Counts:
    counts = dict(placed)
    counts[profile] = counts.get(profile, 0) + 1
    return tuple(sorted(counts.items()))


def _covers(larger: Counts, smaller: Counts) -> bool:
    counts = dict(larger)
    return all(counts.get(profile, 0) >= count for profile, count in smaller)


def _units(grid: Grid, filling: Counts) -> int:
    return sum(grid.shapes[grid.aliases.get(profile, profile)].size * count for profile, count in filling)


def _cheapest(grid: Grid, state: int, filling: Counts, index: int, cost: Cost) -> list[tuple[str, int]]:
    """The places for one GPU's part, cheapest in the policy's eyes at the end."""
    if not filling:
        return []
    reached: dict[tuple[int, Counts], tuple[tuple[int, ...], list[tuple[str, int]]]] = {(state, filling): ((), [])}
    done: list[tuple[tuple[int, ...], list[tuple[str, int]]]] = []
    while reached:
        following: dict[tuple[int, Counts], tuple[tuple[int, ...], list[tuple[str, int]]]] = {}
        for (here, left), (_, path) in reached.items():
            if not left:
                shape = grid.shape(path[-1][0])
                assert shape is not None
                done.append((cost(index, state, here, shape, path[-1][1]), path))
                continue
            profile = left[0][0]
            shape = grid.shape(profile)
            for start in grid.places(here, shape) if shape else ():
                assert shape is not None
                after = (grid.put(here, shape, start), _minus(left, ((profile, 1),)))
                option = ((), [*path, (profile, start)])
                if after not in following or option < following[after]:
                    following[after] = option
        reached = following
    return min(done)[1]
