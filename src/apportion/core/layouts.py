"""Placements for a list of slices on one empty GPU: at the positions given, otherwise at any that fit."""

from __future__ import annotations

from collections.abc import Sequence

from apportion.apis.errors import CatalogError
from apportion.apis.migconfig import LayoutEntry
from apportion.core import grid
from apportion.core.catalog import Model
from apportion.core.grid import Grid, Shape

Cuts = tuple[tuple[str, int, int], ...]  # (profile, start, size), by start


def lay_out(model: Model, entries: Sequence[LayoutEntry], field: str = "layout") -> Cuts:
    """Raises CatalogError if the model lacks a profile or the slices do not fit together.

    Positions that are no placements of the model are treated as numbering, because several tools write them so.
    """
    cut = grid.of(model)
    shapes = [_shape(cut, model, entry, field) for entry in entries]
    found = _as_written(cut, shapes, entries)
    if found is None:
        found = _search(cut, sorted(shapes, key=lambda shape: (-shape.size, shape.index)), grid.EMPTY)
    if found is None:
        listed = ", ".join(entry.profile for entry in entries)
        raise CatalogError(field, listed, f"these slices do not fit together on one {model.id}", code="IllegalLayout")
    return tuple(sorted(found, key=lambda each: each[1]))


def _shape(cut: Grid, model: Model, entry: LayoutEntry, field: str) -> Shape:
    shape = cut.shape(entry.profile)
    if shape is None:
        known = ", ".join(profile.name for profile in model.profiles) or "none"
        raise CatalogError(field, entry.profile, f"{model.id} has no such profile; it has {known}")
    return shape


def _as_written(
    cut: Grid, shapes: Sequence[Shape], entries: Sequence[LayoutEntry]
) -> list[tuple[str, int, int]] | None:
    state, found = grid.EMPTY, []
    for shape, entry in zip(shapes, entries, strict=True):
        if entry.position is None or not cut.legal(state, shape, entry.position):
            return None
        state = cut.put(state, shape, entry.position)
        found.append((shape.name, entry.position, shape.size))
    return found


def _search(cut: Grid, left: Sequence[Shape], state: int, after: int = -1) -> list[tuple[str, int, int]] | None:
    """`after` keeps equal slices in order: their permutations are one and the same layout."""
    if not left:
        return []
    first, rest = left[0], left[1:]
    for start in cut.places(state, first):
        if start <= after:
            continue
        again = start if rest and rest[0] is first else -1
        found = _search(cut, rest, cut.put(state, first, start), again)
        if found is not None:
            return [(first.name, start, first.size), *found]
    return None
