"""The prices of `node_prices`, for many nodes at once. Every line has its counterpart there.

Mostly only a few nodes have changed, so what counts is the number of array operations, not their length: rows are
taken out of an array once, and what does not depend on the request is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from apportion.apis.request import Request
from apportion.core.placement.demand import Demand
from apportion.core.placement.node_prices import (
    BALANCE_MICRO,
    FIT_MICRO_PER_MILLI,
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
    PRODUCT,
    NodeTable,
    Numbers,
)
from apportion.core.policies import BEST_FIT, FIRST_FIT, FRAGMENTATION, PACK, Policy

Flags = npt.NDArray[np.bool_]

_sum = np.add.reduce  # what `sum` calls in the end
_LOST, _STRANDED, _SHAPES = 0, 1, 2  # columns of what `usability` gives


def usability(nodes: NodeTable, rows: Numbers, policy: Policy) -> Numbers:
    """How usable nodes are for the usual requests: needed by every price on them, so they are kept.

    For each node the milli-GPU that the requests cannot use, times their weights; the milli-GPU that its CPU cannot
    serve; for each shape of request the GPUs that have room for it, and the milli-GPU on these.
    """
    if policy.name != FRAGMENTATION:
        return np.zeros((len(rows), _SHAPES), np.int64)
    tables, demand = _tables(policy.demand, nodes.products), policy.demand
    numbers, left = nodes.numbers.take(rows, axis=0), nodes.left.take(rows, axis=0)[:, :, None]
    fits = left >= tables.milli
    fitting, usable = _sum(fits, axis=1, dtype=np.int64), _sum(fits * left, axis=1)
    cpu, gpu = numbers[:, CPU], numbers[:, GPU]
    weights = tables.weights[numbers[:, PRODUCT], tables.steps.searchsorted(cpu, side="right")]
    found = np.empty((len(rows), _SHAPES + 2 * len(demand.shapes)), np.int64)
    found[:, _LOST] = demand.total * gpu - _sum((fitting >= tables.gpus) * usable * weights, axis=1)
    found[:, _STRANDED] = _stranded(gpu, cpu, demand)
    found[:, _SHAPES : _SHAPES + len(demand.shapes)] = fitting
    found[:, _SHAPES + len(demand.shapes) :] = usable
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


class _Tables(NamedTuple):
    """A `Demand` as arrays. `weights` go by product, step of CPU and shape; no weight where a product is not open."""

    remainder: Numbers
    milli: Numbers
    gpus: Numbers
    steps: Numbers
    weights: Numbers
    scarcity: Numbers


def _whole_prices(numbers: Numbers, known: Numbers, request: Request, policy: Policy, products: list[str]) -> Numbers:
    """With so many whole GPUs taken; a free GPU has room for every shape, so all counts fall alike."""
    whole = request.whole_gpus
    cpu, gpu = numbers[:, CPU] - cpu_of(request), numbers[:, GPU] - MILLI * whole
    if policy.name != FRAGMENTATION:
        return _by_policy(policy, numbers, STEP * gpu if whole else cpu, gpus=bool(whole))
    demand = policy.demand
    tables, shapes = _tables(demand, products), len(demand.shapes)
    fitting = known[:, _SHAPES : _SHAPES + shapes] - whole
    usable = known[:, _SHAPES + shapes :] - MILLI * whole
    weights = tables.weights[numbers[:, PRODUCT], tables.steps.searchsorted(cpu, side="right")]
    lost = demand.total * gpu - _sum((fitting >= tables.gpus) * usable * weights, axis=1)
    price = _fragmentation(numbers, cpu, gpu, lost - known[:, _LOST], demand)
    if whole:
        price += SLOTS * whole * (demand.remainder[MILLI] - demand.remainder[0])
        price += STRANDING_MICRO_PER_MILLI * (_stranded(gpu, cpu, demand) - known[:, _STRANDED])
        if demand.scarcity:
            price += tables.scarcity[numbers[:, PRODUCT]] * (MILLI * whole) // (2 * MILLI)
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
    devices = nodes.free[rows, DEVICES]
    fits &= (free < memory) | (devices > 0)[:, None]
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
    demand = policy.demand
    tables, shapes, known = _tables(demand, products), len(demand.shapes), known[:, None, :]
    cpu = numbers[:, :, CPU] - cpu_of(request)
    was, now = left[:, :, None] >= tables.milli, after[:, :, None] >= tables.milli
    fitting = known[:, :, _SHAPES : _SHAPES + shapes] - (was ^ now)  # a GPU only loses by a share
    usable = known[:, :, _SHAPES + shapes :] - was * left[:, :, None] + now * after[:, :, None]
    weights = tables.weights[numbers[:, :, PRODUCT], tables.steps.searchsorted(cpu, side="right")]
    lost = demand.total * gpu - _sum((fitting >= tables.gpus) * usable * weights, axis=2)
    price = _fragmentation(numbers, cpu, gpu, lost - known[:, :, _LOST], demand)
    price += SLOTS * (tables.remainder[left] - tables.remainder[after])
    more = _stranded(gpu, cpu, demand) - known[:, :, _STRANDED]
    price += np.where(taken != 0, STRANDING_MICRO_PER_MILLI * more, 0)
    if demand.scarcity:
        price += tables.scarcity[numbers[:, :, PRODUCT]] * taken // (2 * MILLI)
    return price


def _fragmentation(numbers: Numbers, cpu: Numbers, gpu: Numbers, waste: Numbers, demand: Demand) -> Numbers:
    """The part of the price that is the same for all kinds of request: waste, fit and balance."""
    gap = np.abs(cpu * numbers[..., ALL_GPU] - gpu * numbers[..., ALL_CPU])
    price: Numbers = MILLI * waste // demand.total
    price += gpu * FIT_MICRO_PER_MILLI[0] // FIT_MICRO_PER_MILLI[1]
    price += BALANCE_MICRO * gap // numbers[..., BALANCE]
    return price


def _stranded(gpu: Numbers, cpu: Numbers, demand: Demand) -> Numbers:
    if not demand.cpu_per_gpu:
        return np.zeros_like(gpu)
    beyond: Numbers = np.maximum(0, gpu - cpu * MILLI // demand.cpu_per_gpu)
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


_known: list[tuple[Demand, list[str], int, _Tables]] = []


def _tables(demand: Demand, products: list[str]) -> _Tables:
    """The arrays of a `Demand`; made once, for the few that are in use at a time."""
    for known, meant, count, tables in _known:
        if known is demand and meant is products and count == len(products):
            return tables
    tables = _build(demand, products)
    _known.insert(0, (demand, products, len(products), tables))
    del _known[8:]
    return tables


def _build(demand: Demand, products: list[str]) -> _Tables:
    shapes = demand.shapes
    open_to = [[s.products is None or product in s.products for s in shapes] for product in products]
    weights = np.array(demand.weights, np.int64).reshape(1, len(demand.cpu_steps) + 1, len(shapes))
    return _Tables(
        remainder=np.array(demand.remainder, np.int64),
        milli=np.array([shape.milli for shape in shapes], np.int64),
        gpus=np.array([shape.gpus for shape in shapes], np.int64),
        steps=np.array(demand.cpu_steps, np.int64),
        weights=weights * np.array(open_to, np.int64).reshape(len(products), 1, len(shapes)),
        scarcity=np.array([demand.scarcity.get(product, 0) for product in products], np.int64),
    )
