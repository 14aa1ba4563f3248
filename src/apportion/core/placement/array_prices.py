"""The prices of `node_prices`, for many nodes at once. Every line has its counterpart there.

Mostly only a few nodes have changed, so what counts is the number of array operations, not their length: rows are
taken out of an array once, and what does not depend on the request is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from apportion.apis.request import Request
from apportion.core.placement.fragmentation_tables import FragmentationTables
from apportion.core.placement.node_prices import (
    BALANCE_MICRO,
    FIT_MICRO_PER_MILLI,
    JOINING_MICRO,
    MILLI,
    ORDER,
    SLOTS,
    STEP,
    STRANDING_MICRO_PER_MILLI,
    cpu_of,
)
from apportion.core.placement.node_table import (
    ALL_CPU,
    ALL_GPU,
    BALANCE,
    CPU,
    DEVICES,
    GPU,
    GPUS,
    IDLE,
    POD_PLACES,
    PRODUCT,
    NodeTable,
    Numbers,
)
from apportion.core.policies import BEST_FIT, FIRST_FIT, FRAGMENTATION, PACK, Policy

Flags = npt.NDArray[np.bool_]

_sum = np.add.reduce  # what `sum` calls in the end
_LOST, _STRANDED, _TYPICAL = 0, 1, 2  # columns of what `usability` gives


def usability(nodes: NodeTable, rows: Numbers, policy: Policy) -> Numbers:
    """How usable nodes are for the usual requests: needed by every price on them, so they are kept.

    For each node the milli-GPU that the requests cannot use, times their weights; the milli-GPU that its CPU cannot
    serve; for each typical request the GPUs that have room for it, and the milli-GPU on these.
    """
    if policy.name != FRAGMENTATION:
        return np.zeros((len(rows), _TYPICAL), np.int64)
    arrays, tables = _arrays(policy.tables, nodes.products), policy.tables
    numbers, left = nodes.numbers.take(rows, axis=0), nodes.left.take(rows, axis=0)[:, :, None]
    fits = left >= arrays.milli
    fitting, usable = _sum(fits, axis=1, dtype=np.int64), _sum(fits * left, axis=1)
    cpu, gpu = numbers[:, CPU], numbers[:, GPU]
    weights = arrays.weights[numbers[:, PRODUCT], arrays.steps.searchsorted(cpu, side="right")]
    found = np.empty((len(rows), _TYPICAL + 2 * len(tables.typical)), np.int64)
    found[:, _LOST] = tables.total * gpu - _sum((fitting >= arrays.gpus) * usable * weights, axis=1)
    found[:, _STRANDED] = _stranded(gpu, cpu, tables)
    found[:, _TYPICAL : _TYPICAL + len(tables.typical)] = fitting
    found[:, _TYPICAL + len(tables.typical) :] = usable
    return found


def prices(
    nodes: NodeTable, rows: Numbers, request: Request, policy: Policy, known: Numbers, never: int
) -> tuple[Numbers, Numbers | int]:
    """The price of the cheapest way to put the request on each of these nodes, `never` where there is none; and
    the position of the GPU that a share would go to. `known` is what `usability` said about these nodes."""
    numbers = nodes.numbers.take(rows, axis=0)
    if request.share is not None:
        if not nodes.left.shape[1]:
            return np.full(len(rows), never, np.int64), 0
        return _cheapest_share(nodes, rows, request, policy, known, numbers, never)
    whole = request.whole_gpus
    if whole > nodes.left.shape[1]:
        return np.full(len(rows), never, np.int64), 0
    found = _whole_prices(numbers, known, request, policy, nodes.products)
    return (np.where(numbers[:, IDLE] >= whole, found, never) if whole else found), 0


class _Arrays(NamedTuple):
    """`FragmentationTables` as arrays. `weights` go by product, step of CPU and typical request; they are 0 where the
    request is not open to the product."""

    remainder: Numbers
    milli: Numbers
    gpus: Numbers
    steps: Numbers
    weights: Numbers
    scarcity: Numbers


def _whole_prices(numbers: Numbers, known: Numbers, request: Request, policy: Policy, products: list[str]) -> Numbers:
    """With so many whole GPUs taken; a free GPU has room for every request, so all counts fall alike."""
    whole = request.whole_gpus
    cpu, gpu = numbers[:, CPU] - cpu_of(request), numbers[:, GPU] - MILLI * whole
    if policy.name != FRAGMENTATION:
        return _by_policy(policy, numbers, STEP * gpu if whole else cpu, gpus=bool(whole))
    tables = policy.tables
    arrays, typical = _arrays(tables, products), len(tables.typical)
    fitting = known[:, _TYPICAL : _TYPICAL + typical] - whole
    usable = known[:, _TYPICAL + typical :] - MILLI * whole
    weights = arrays.weights[numbers[:, PRODUCT], arrays.steps.searchsorted(cpu, side="right")]
    lost = tables.total * gpu - _sum((fitting >= arrays.gpus) * usable * weights, axis=1)
    price = _fragmentation(numbers, cpu, gpu, lost - known[:, _LOST], tables)
    if whole:
        price += SLOTS * whole * (tables.remainder[MILLI] - tables.remainder[0])
        price += STRANDING_MICRO_PER_MILLI * (_stranded(gpu, cpu, tables) - known[:, _STRANDED])
        if tables.scarcity:
            price += arrays.scarcity[numbers[:, PRODUCT]] * (MILLI * whole) // (2 * MILLI)
    return price


def _cheapest_share(
    nodes: NodeTable, rows: Numbers, request: Request, policy: Policy, known: Numbers, numbers: Numbers, never: int
) -> tuple[Numbers, Numbers]:
    left = nodes.left.take(rows, axis=0)
    fits, after = _shared(nodes, rows, request, left)
    each = np.where(fits, _share_prices(numbers, left, after, known, request, policy, nodes.products), never)
    chosen = each.argmin(axis=1)
    return each[np.arange(len(rows)), chosen], chosen


def _shared(nodes: NodeTable, rows: Numbers, request: Request, left: Numbers) -> tuple[Flags, Numbers]:
    """Where a share fits, and what would be left of each GPU with it."""
    share = request.share
    assert share is not None
    memory, free = nodes.memory.take(rows, axis=0), nodes.mib.take(rows, axis=0)
    need = memory * share.milli // MILLI if share.milli is not None else np.full_like(memory, share.memory_mib)
    fits = (need > 0) & (need <= free)
    unshared = np.minimum(nodes.free[rows, DEVICES], nodes.free[rows, POD_PLACES] - 1)
    fits &= (free < memory) | (unshared > 0)[:, None]
    if share.memory_mib is not None:
        fits &= nodes.measured.take(rows, axis=0)
    return fits, np.where(fits, (free - need) * MILLI // np.maximum(memory, 1), left)


def _share_prices(
    numbers: Numbers,
    left: Numbers,
    after: Numbers,
    known: Numbers,
    request: Request,
    policy: Policy,
    products: list[str],
) -> Numbers:
    """One price per node and GPU, each with the share on that GPU alone."""
    numbers = numbers[:, None, :]  # numbers per node meet numbers per GPU
    taken = left - after
    gpu = numbers[:, :, GPU] - taken
    if policy.name != FRAGMENTATION:
        # A share too small to show in milli leaves nothing that was touched, as the plain path has it.
        return _by_policy(policy, numbers, STEP * np.where(taken == 0, 0, after) + gpu, gpus=True)
    tables = policy.tables
    arrays, typical, known = _arrays(tables, products), len(tables.typical), known[:, None, :]
    cpu = numbers[:, :, CPU] - cpu_of(request)
    was, now = left[:, :, None] >= arrays.milli, after[:, :, None] >= arrays.milli
    fitting = known[:, :, _TYPICAL : _TYPICAL + typical] - (was ^ now)  # a GPU only loses by a share
    usable = known[:, :, _TYPICAL + typical :] - was * left[:, :, None] + now * after[:, :, None]
    weights = arrays.weights[numbers[:, :, PRODUCT], arrays.steps.searchsorted(cpu, side="right")]
    lost = tables.total * gpu - _sum((fitting >= arrays.gpus) * usable * weights, axis=2)
    price = _fragmentation(numbers, cpu, gpu, lost - known[:, :, _LOST], tables)
    price += SLOTS * (arrays.remainder[left] - arrays.remainder[after])
    price += JOINING_MICRO * ((left == MILLI) & (after != MILLI))
    more = _stranded(gpu, cpu, tables) - known[:, :, _STRANDED]
    price += np.where(taken != 0, STRANDING_MICRO_PER_MILLI * more, 0)
    if tables.scarcity:
        price += arrays.scarcity[numbers[:, :, PRODUCT]] * taken // (2 * MILLI)
    return price


def _fragmentation(
    numbers: Numbers, cpu: Numbers, gpu: Numbers, waste: Numbers, tables: FragmentationTables
) -> Numbers:
    """The part of the price that is the same for all kinds of request: waste, fit and balance."""
    gap = np.abs(cpu * numbers[..., ALL_GPU] - gpu * numbers[..., ALL_CPU])
    price: Numbers = MILLI * waste // tables.total
    price += gpu * FIT_MICRO_PER_MILLI[0] // FIT_MICRO_PER_MILLI[1]
    price += BALANCE_MICRO * gap // numbers[..., BALANCE]
    return price


def _stranded(gpu: Numbers, cpu: Numbers, tables: FragmentationTables) -> Numbers:
    if not tables.cpu_per_gpu:
        return np.zeros_like(gpu)
    beyond: Numbers = np.maximum(0, gpu - cpu * MILLI // tables.cpu_per_gpu)
    return beyond


def _by_policy(policy: Policy, numbers: Numbers, tight: Numbers, *, gpus: bool) -> Numbers:
    if policy.name == FIRST_FIT:
        return np.zeros_like(tight)
    if policy.name == BEST_FIT:
        return tight
    if gpus:
        empty = numbers[..., GPU] // np.maximum(numbers[..., GPUS], 1)
    else:
        total = numbers[..., ALL_CPU]
        empty = np.where(total > 0, MILLI * numbers[..., CPU] // np.maximum(total, 1), 0)
    price = ORDER * empty + tight
    return price if policy.name == PACK else -price


_known: list[tuple[FragmentationTables, list[str], int, _Arrays]] = []


def _arrays(tables: FragmentationTables, products: list[str]) -> _Arrays:
    """The arrays of these tables; made once, for the few that are in use at a time."""
    for known, meant, count, arrays in _known:
        if known is tables and meant is products and count == len(products):
            return arrays
    arrays = _build(tables, products)
    _known.insert(0, (tables, products, len(products), arrays))
    del _known[8:]
    return arrays


def _build(tables: FragmentationTables, products: list[str]) -> _Arrays:
    typical = tables.typical
    open_to = [[each.products is None or product in each.products for each in typical] for product in products]
    weights = np.array(tables.weights, np.int64).reshape(1, len(tables.cpu_steps) + 1, len(typical))
    return _Arrays(
        remainder=np.array(tables.remainder, np.int64),
        milli=np.array([each.milli for each in typical], np.int64),
        gpus=np.array([each.gpus for each in typical], np.int64),
        steps=np.array(tables.cpu_steps, np.int64),
        weights=weights * np.array(open_to, np.int64).reshape(len(products), 1, len(typical)),
        scarcity=np.array([tables.scarcity.get(product, 0) for product in products], np.int64),
    )
