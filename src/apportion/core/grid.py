"""One GPU in MIG mode as a bit mask, and the tables that answer questions about it.

A state is one integer. Its lowest bits say which memory units are taken; the bits above name the slices that
take them (where each begins and ends); the highest count what else can run out: media engines, or profiles
that exist once per GPU such as `+me`. Only what can really run out before the units do gets a counter, so
most models need none or one. Answers are worked out once per state and kept; an A100 has a few hundred.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from apportion.core.catalog import Model, Profile

EMPTY = 0


class Shape:
    """A profile on its grid: where it may lie, and what it uses up."""

    __slots__ = ("bits", "charge", "guards", "index", "limit", "masks", "most", "name", "size", "starts")

    def __init__(self, index: int, profile: Profile) -> None:
        self.index = index
        self.name = profile.name
        self.size = profile.size
        self.starts = tuple(sorted(profile.starts))
        self.masks = tuple(((1 << profile.size) - 1) << start for start in self.starts)
        self.bits: dict[int, int] = {}  # start -> its units and its slice
        self.most = profile.most
        self.limit = profile.limit
        self.charge = 0
        self.guards: tuple[tuple[int, int, int], ...] = ()  # shift, field mask, most that may be there already

    def mask(self, start: int) -> int:
        return ((1 << self.size) - 1) << start


class Grid:
    """The geometry of one model, with its tables."""

    def __init__(self, model: Model) -> None:
        self.units = model.units
        self.full = (1 << model.units) - 1
        self.shapes = {p.name: Shape(i, p) for i, p in enumerate(model.profiles)}
        self.ordered = tuple(self.shapes.values())
        self.intervals = tuple(sorted({(start, shape.size) for shape in self.ordered for start in shape.starts}))
        for shape in self.ordered:
            for start, mask in zip(shape.starts, shape.masks, strict=True):
                shape.bits[start] = mask | 1 << (self.units + self.intervals.index((start, shape.size)))
        self.aliases = {alias: p.name for p in model.profiles for alias in p.aliases}
        self._places: dict[int, tuple[tuple[int, ...], ...]] = {}
        self._counts: dict[tuple[int, int], int] = {}
        _lay_counters(self, model)

    def shape(self, profile: str) -> Shape | None:
        return self.shapes.get(self.aliases.get(profile, profile))

    def places(self, state: int, shape: Shape) -> tuple[int, ...]:
        """Where a slice of this shape may begin now, lowest first."""
        known = self._places.get(state)
        if known is None:
            known = self._places[state] = tuple(self._find_places(state, each) for each in self.ordered)
        return known[shape.index]

    def put(self, state: int, shape: Shape, start: int) -> int:
        return (state | shape.bits[start]) + shape.charge

    def take(self, state: int, shape: Shape, start: int) -> int:
        return (state & ~shape.bits[start]) - shape.charge

    def legal(self, state: int, shape: Shape, start: int) -> bool:
        return start in self.places(state, shape)

    def free_units(self, state: int) -> int:
        return self.units - (state & self.full).bit_count()

    def units_of(self, start: int, size: int) -> int:
        """The units of the GPU in that range, which a claim or a report may name beyond its end."""
        first, end = (min(max(0, unit), self.units) for unit in (start, start + size))
        return (1 << end) - (1 << first) if first < end else 0

    def layout(self, state: int) -> int:
        """The slices alone, without units and counters: one bit for each of `intervals`."""
        return (state >> self.units) & ((1 << len(self.intervals)) - 1)

    def room(self, state: int, shape: Shape) -> int:
        """How many more slices of this shape fit if nothing else comes."""
        key = (state, shape.index)
        known = self._counts.get(key)
        if known is None:
            known = self._counts[key] = self._count(state, shape)
        return known

    def forget(self) -> None:
        """Drop the tables; needed only while the counters are being laid."""
        self._places.clear()
        self._counts.clear()

    @cached_property
    def states(self) -> frozenset[int]:
        """Every state that some sequence of slices can reach."""
        return frozenset(self._reachable())

    def _reachable(self) -> Iterator[int]:
        seen = {EMPTY}
        todo = [EMPTY]
        while todo:
            state = todo.pop()
            yield state
            for shape in self.ordered:
                for start in self.places(state, shape):
                    after = self.put(state, shape, start)
                    if after not in seen:
                        seen.add(after)
                        todo.append(after)

    def _find_places(self, state: int, shape: Shape) -> tuple[int, ...]:
        for shift, field, most in shape.guards:
            if (state >> shift) & field > most:
                return ()
        return tuple(start for start, mask in zip(shape.starts, shape.masks, strict=True) if not state & mask)

    def _count(self, state: int, shape: Shape) -> int:
        # A profile's own starts never overlap (the catalog refuses that), so taking any place costs no other one.
        free = self.places(state, shape)
        count = 0
        for start in free:
            if not self._guarded(state, shape):
                break
            state = self.put(state, shape, start)
            count += 1
        return count

    def _guarded(self, state: int, shape: Shape) -> bool:
        return all((state >> shift) & field <= most for shift, field, most in shape.guards)


_grids: dict[str, list[tuple[Model, Grid]]] = {}


def of(model: Model) -> Grid:
    """The grid of a model; equal models share one, so that its tables are filled once."""
    known = _grids.setdefault(model.id, [])
    for other, grid in known:
        if other is model or other == model:
            return grid
    grid = Grid(model)
    known.append((model, grid))
    return grid


def _lay_counters(grid: Grid, model: Model) -> None:
    """Give a counter to each profile limit and each engine that can run out before everything else does."""
    shift = model.units + len(grid.intervals)
    for capacity, uses in _counters(model):
        if _heaviest(grid, uses) <= capacity:
            continue
        width = capacity.bit_length()
        field = (1 << width) - 1
        for shape in grid.ordered:
            use = uses.get(shape.name, 0)
            if use:
                shape.charge += use << shift
                shape.guards = (*shape.guards, (shift, field, capacity - use))
        shift += width
        grid.forget()


def _counters(model: Model) -> Iterator[tuple[int, dict[str, int]]]:
    for profile in model.profiles:
        if profile.limit and profile.limit < len(profile.starts):
            yield profile.limit, {profile.name: 1}
    for engine in sorted(model.engines):
        uses = {p.name: p.engines[engine] for p in model.profiles if p.engines.get(engine)}
        if all(use <= model.engines[engine] for use in uses.values()):  # else the table contradicts itself
            yield model.engines[engine], uses


def _heaviest(grid: Grid, uses: dict[str, int]) -> int:
    """The most of a counter that slices could use if nothing but the counters laid so far held them back."""
    heaviest = {EMPTY: 0}
    todo = [EMPTY]
    while todo:
        state = todo.pop()
        for shape in grid.ordered:
            total = heaviest[state] + uses.get(shape.name, 0)
            for start in grid.places(state, shape):
                after = grid.put(state, shape, start)
                if total > heaviest.get(after, -1):
                    heaviest[after] = total
                    todo.append(after)
    return max(heaviest.values())
