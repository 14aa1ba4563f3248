"""The prices of `scoring`, for many nodes at once. Every line has its twin there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from apportion.apis.request import Request
from apportion.core.board import CPU, DEVICES, Board, Numbers
from apportion.core.policies import BEST_FIT, FIRST_FIT, FRAGMENTATION, PACK, Policy
from apportion.core.scoring import BALANCE_MICRO, FIT_MICRO_PER_MILLI, MILLI, ORDER, SLOTS, STEP
from apportion.core.worth import Worth

Flags = npt.NDArray[np.bool_]


class Standing(NamedTuple):
    """Nodes as they stand, in the eyes of the usual requests: needed by every price on them, so kept.

    For each node and shape of request: GPUs that have room for it, and milli-GPU on these; and for each node the
    milli-GPU that the requests cannot use, times their weights.
    """

    fitting: Numbers
    usable: Numbers
    lost: Numbers

    def at(self, rows: Numbers) -> Standing:
        return Standing(self.fitting[rows], self.usable[rows], self.lost[rows])

    def replace(self, rows: Numbers, other: Standing) -> None:
        for mine, theirs in zip(self, other, strict=True):
            mine[rows] = theirs


def standing(board: Board, rows: Numbers, policy: Policy) -> Standing:
    if policy.name != FRAGMENTATION:
        nothing = np.zeros((len(rows), 0), np.int64)
        return Standing(nothing, nothing, np.zeros(len(rows), np.int64))
    tables = _tables(policy.worth, board.products)
    left = board.left[rows]
    fits = left[:, :, None] >= tables.milli
    fitting: Numbers = fits.sum(axis=1)
    usable: Numbers = (fits * left[:, :, None]).sum(axis=1)
    lost = _unusable(
        fitting, usable, left.sum(axis=1), board.free[rows, CPU], board.product[rows], tables, policy.worth
    )
    return Standing(fitting, usable, lost)


def prices(
    board: Board, rows: Numbers, request: Request, policy: Policy, known: Standing, never: int
) -> tuple[Numbers, Numbers]:
    """The price of the cheapest way to put the request on each of these nodes, `never` where there is none; and
    the position of the GPU that a share would go to. `known` is what `standing` said about these nodes."""
    scene = _scene(board, rows, request, known)
    nowhere = np.zeros(len(rows), np.int64)
    if request.share is None:
        found = _prices(scene, request.whole_gpus, policy)
        if request.whole_gpus:
            enough = (scene.left == MILLI).sum(axis=1) >= request.whole_gpus
            found = np.where(enough, found, never)
        return found, nowhere
    if not scene.left.shape[1]:
        return np.full(len(rows), never, np.int64), nowhere
    fits, after = _shared(board, rows, request, scene.left)
    each = np.where(fits, _share_prices(scene, after, policy), never)
    chosen = each.argmin(axis=1)
    return each[np.arange(len(rows)), chosen], chosen


class _Scene(NamedTuple):
    """The nodes in question before anything is placed."""

    cpu: Numbers
    cpu_after: Numbers
    cpu_total: Numbers
    left: Numbers
    gpu: Numbers
    gpus: Numbers
    product: Numbers
    products: list[str]
    known: Standing


class _Tables(NamedTuple):
    """A Worth as arrays."""

    remainder: Numbers
    milli: Numbers
    gpus: Numbers
    steps: Numbers
    weights: Numbers
    open_to: Flags  # product x shape
    scarcity: Numbers


def _scene(board: Board, rows: Numbers, request: Request, known: Standing) -> _Scene:
    left = board.left[rows]
    cpu = board.free[rows, CPU]
    return _Scene(
        cpu,
        cpu - request.resources.get("cpu", 0),
        board.cpu_total[rows],
        left,
        left.sum(axis=1),
        board.gpus[rows],
        board.product[rows],
        board.products,
        known,
    )


def _shared(board: Board, rows: Numbers, request: Request, left: Numbers) -> tuple[Flags, Numbers]:
    """Where a share fits, and what would be left of each GPU with it."""
    share = request.share
    assert share is not None
    memory, free = board.memory[rows], board.mib[rows]
    need = memory * share.milli // MILLI if share.milli is not None else np.full_like(memory, share.memory_mib)
    fits = (need > 0) & (need <= free)
    devices = board.free[rows, DEVICES]
    fits &= (free < memory) | (devices > 0)[:, None]
    return fits, np.where(fits, (free - need) * MILLI // np.maximum(memory, 1), left)


def _prices(scene: _Scene, whole: int, policy: Policy) -> Numbers:
    """The price with so many whole GPUs taken; a free GPU has room for every shape, so all counts fall alike."""
    gpu_after = scene.gpu - MILLI * whole
    if policy.name == FRAGMENTATION:
        tables, known, worth = _tables(policy.worth, scene.products), scene.known, policy.worth
        slots = whole * (tables.remainder[MILLI] - tables.remainder[0])
        fitting, usable = known.fitting - whole, known.usable - MILLI * whole
        waste = _unusable(fitting, usable, gpu_after, scene.cpu_after, scene.product, tables, worth) - known.lost
        return _fragmentation(scene, slots, waste, gpu_after, worth, tables)
    if whole:
        return _by_tightness(policy, STEP * gpu_after, scene.gpu // np.maximum(scene.gpus, 1))
    empty = np.where(scene.cpu_total > 0, MILLI * scene.cpu // np.maximum(scene.cpu_total, 1), 0)
    return _by_tightness(policy, scene.cpu_after, empty)


def _share_prices(scene: _Scene, after: Numbers, policy: Policy) -> Numbers:
    """One price per node and GPU, each with the share on that GPU alone."""
    gpu_after = scene.gpu[:, None] - scene.left + after
    if policy.name == FRAGMENTATION:
        tables = _tables(policy.worth, scene.products)
        slots = tables.remainder[scene.left] - tables.remainder[after]
        waste = _unusable_with(scene, after, gpu_after, tables, policy.worth) - scene.known.lost[:, None]
        return _fragmentation(_per_gpu(scene), slots, waste, gpu_after, policy.worth, tables)
    # A share too small to show in milli leaves nothing that was touched, as the plain path has it.
    touched = np.where(after == scene.left, 0, after)
    empty = scene.gpu // np.maximum(scene.gpus, 1)
    return _by_tightness(policy, STEP * touched + gpu_after, np.broadcast_to(empty[:, None], after.shape))


def _by_tightness(policy: Policy, tight: Numbers, empty: Numbers) -> Numbers:
    if policy.name == FIRST_FIT:
        return np.zeros_like(tight)
    if policy.name == BEST_FIT:
        return tight
    price = ORDER * empty + tight
    return price if policy.name == PACK else -price


def _per_gpu(scene: _Scene) -> _Scene:
    """The same nodes, shaped so that numbers per node meet numbers per GPU."""
    return scene._replace(
        cpu=scene.cpu[:, None],
        cpu_after=scene.cpu_after[:, None],
        cpu_total=scene.cpu_total[:, None],
        gpu=scene.gpu[:, None],
        gpus=scene.gpus[:, None],
        product=scene.product[:, None],
    )


def _fragmentation(
    scene: _Scene, slots: Numbers | np.int64, waste: Numbers, gpu_after: Numbers, worth: Worth, tables: _Tables
) -> Numbers:
    price = SLOTS * slots + MILLI * waste // worth.total
    price += gpu_after * FIT_MICRO_PER_MILLI[0] // FIT_MICRO_PER_MILLI[1]
    whole = MILLI * np.maximum(scene.gpus, 1)
    total = np.maximum(scene.cpu_total, 1)
    gap = np.abs(scene.cpu_after * whole - gpu_after * total)
    price += np.where(scene.cpu_total > 0, BALANCE_MICRO * gap // (total * whole), 0)
    taken = scene.gpu - gpu_after
    if worth.cpu_per_gpu:
        after = np.maximum(0, gpu_after - scene.cpu_after * MILLI // worth.cpu_per_gpu)
        before = np.maximum(0, scene.gpu - scene.cpu * MILLI // worth.cpu_per_gpu)
        price += np.where(taken != 0, 3 * MILLI * (after - before) // 2, 0)
    price += tables.scarcity[scene.product] * taken // (2 * MILLI)
    return price


def _unusable(
    fitting: Numbers, usable: Numbers, gpu: Numbers, cpu: Numbers, product: Numbers, tables: _Tables, worth: Worth
) -> Numbers:
    weights = tables.weights[np.searchsorted(tables.steps, cpu, side="right")]
    hosted = (fitting >= tables.gpus) & tables.open_to[product]
    lost: Numbers = worth.total * gpu - (weights * hosted * usable).sum(axis=1)
    return lost


def _unusable_with(scene: _Scene, after: Numbers, gpu_after: Numbers, tables: _Tables, worth: Worth) -> Numbers:
    """The same once per GPU, each time with that GPU as it would be after."""
    left, later = scene.left[:, :, None], after[:, :, None]
    was, now = left >= tables.milli, later >= tables.milli
    fitting = scene.known.fitting[:, None, :] - (was ^ now)  # a GPU only loses by a share
    usable = scene.known.usable[:, None, :] - was * left + now * later
    weights = tables.weights[np.searchsorted(tables.steps, scene.cpu_after, side="right")]
    weights = weights * tables.open_to[scene.product]
    lost: Numbers = worth.total * gpu_after - ((fitting >= tables.gpus) * usable * weights[:, None, :]).sum(axis=2)
    return lost


_known: list[tuple[Worth, list[str], int, _Tables]] = []


def _tables(worth: Worth, products: list[str]) -> _Tables:
    """The arrays of a Worth; made once, for the few that are in use at a time."""
    for known, meant, count, tables in _known:
        if known is worth and meant is products and count == len(products):
            return tables
    tables = _build(worth, products)
    _known.insert(0, (worth, products, len(products), tables))
    del _known[8:]
    return tables


def _build(worth: Worth, products: list[str]) -> _Tables:
    shapes = worth.shapes
    open_to = [[s.products is None or product in s.products for s in shapes] for product in products]
    return _Tables(
        remainder=np.array(worth.remainder, np.int64),
        milli=np.array([shape.milli for shape in shapes], np.int64),
        gpus=np.array([shape.gpus for shape in shapes], np.int64),
        steps=np.array(worth.cpu_steps, np.int64),
        weights=np.array(worth.weights, np.int64).reshape(len(worth.cpu_steps) + 1, len(shapes)),
        open_to=np.array(open_to, np.bool_).reshape(len(products), len(shapes)),
        scarcity=np.array([worth.scarcity.get(product, 0) for product in products], np.int64),
    )
