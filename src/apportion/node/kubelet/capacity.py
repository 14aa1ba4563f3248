"""How many devices of each resource a node announces to its kubelet.

A profile's devices are counted as if the GPUs held nothing else: whether a slice fits beside the
others is decided by the scheduler, and the kubelet must never prevent it. The same for memory:
a GPU counts for as many GB as its fullest legal layout adds up to, if that is more than it has.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from apportion.apis import names, profiles
from apportion.core import grid
from apportion.core.catalog import Catalog, Model
from apportion.node.hardware.partitioner import Gpu

MIB_PER_GB = 1024
MEMORY_ID = "gb"


@dataclass(frozen=True)
class Amount:
    """Devices of one resource: `total` are announced, `healthy` of them as healthy."""

    total: int = 0
    healthy: int = 0


def amounts(gpus: Iterable[Gpu]) -> dict[str, Amount]:
    """Devices by resource name, for the GPUs of a node that are cut on demand."""
    found: dict[str, Amount] = {}
    for gpu in gpus:
        if not gpu.sliced or gpu.fixed:
            continue
        model = model_of(gpu)
        for profile in model.profiles:
            _add(found, profiles.slice_resource(profile.name), profile.most, gpu)
        _add(found, names.GPU_MEMORY, memory_gb(model), gpu)
    return found


def device_ids(resource: str, count: int) -> list[str]:
    """Numbered under the resource's name, the same after every start. A kubelet allows 63 characters."""
    stem = MEMORY_ID if resource == names.GPU_MEMORY else resource.removeprefix(names.SLICE_PREFIX)
    return [f"{stem}-{index}" for index in range(count)]


def keep_allocated(ids: Sequence[str], allocated: frozenset[str]) -> list[str]:
    """As many ids, but those that containers hold: with fewer devices than before these may have higher numbers."""
    beyond = sorted(allocated.difference(ids))
    if not beyond:
        return list(ids)
    free = [name for name in ids if name not in allocated]
    dropped = set(free[max(0, len(free) - len(beyond)) :])
    return [name for name in ids if name not in dropped] + beyond


def choose_healthy(ids: Sequence[str], healthy: int, allocated: frozenset[str]) -> set[str]:
    """Which ids stay healthy when a GPU is lost: those that containers hold first, then the lowest."""
    order = sorted(range(len(ids)), key=lambda index: (ids[index] not in allocated, index))
    return {ids[index] for index in order[:healthy]}


@functools.cache
def model_of(gpu: Gpu) -> Model:
    """The geometry reported by the hardware, completed from the catalog."""
    known = Catalog.shipped().find(gpu.model, gpu.memory_mib)
    return Model.from_discovery(gpu.model, gpu.memory_mib, gpu.profiles, known)


def memory_gb(model: Model) -> int:
    nominal = -(-model.memory_mib // MIB_PER_GB)
    return max(nominal, _fullest_layout(grid.of(model)))


@functools.cache
def _fullest_layout(cut: grid.Grid) -> int:
    """The largest sum of gigabytes by name over all legal layouts of a GPU. Equal models share a grid."""
    gigabytes = {shape.name: profiles.memory_gb(shape.name) for shape in cut.ordered}
    most = {grid.EMPTY: 0}
    todo = [grid.EMPTY]
    while todo:
        state = todo.pop()
        for shape in cut.ordered:
            total = most[state] + gigabytes[shape.name]
            for start in cut.places(state, shape):
                after = cut.put(state, shape, start)
                if total > most.get(after, -1):
                    most[after] = total
                    todo.append(after)
    return max(most.values())


def _add(found: dict[str, Amount], resource: str, count: int, gpu: Gpu) -> None:
    before = found.get(resource, Amount())
    found[resource] = Amount(before.total + count, before.healthy + (count if gpu.healthy else 0))
