"""Another placement on this node for a claim that lost its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from apportion.apis.placements import SlicePlacement
from apportion.core import grid
from apportion.node.hardware.partitioner import Gpu
from apportion.node.kubelet import capacity


def find(profile: str, gpus: Sequence[Gpu], taken: Iterable[SlicePlacement]) -> SlicePlacement | None:
    """The lowest free legal placement for the profile; the fullest GPU first, so that large placements survive."""
    occupied = list(taken)
    options: list[tuple[int, int, int]] = []
    for index, gpu in enumerate(gpus):
        if not (gpu.sliced and gpu.healthy and gpu.profile(profile)):
            continue
        cut = grid.of(capacity.model_of(gpu))
        shape = cut.shape(profile)
        state = _state(cut, [place for place in occupied if place.gpu == gpu.uuid])
        if shape is None:
            continue
        options += [(cut.free_units(state), index, start) for start in cut.places(state, shape)]
    if not options:
        return None
    _, index, start = min(options)
    facts = gpus[index].profile(profile)
    assert facts is not None
    return SlicePlacement(gpus[index].uuid, profile, start, facts.size)


def _state(cut: grid.Grid, places: list[SlicePlacement]) -> int:
    """The GPU with all slices that exist or are claimed on it, also where claims overlap each other."""
    state = grid.EMPTY
    for place in sorted(set(places)):
        shape = cut.shape(place.profile)
        if shape is not None and cut.legal(state, shape, place.start):
            state = cut.put(state, shape, place.start)
        else:
            state |= cut.units_of(place.start, place.size)
    return state
