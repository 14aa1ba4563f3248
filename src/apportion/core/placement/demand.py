"""The tables that the fragmentation policy reads, made from a mix and the fleet it meets.

All numbers are integers: values in millionths of a GPU, remainders in thousandths, CPU in milli.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from apportion.apis import names
from apportion.core.node import NodeState
from apportion.core.placement.remainder_value import MICRO, MILLI, remainder_values
from apportion.core.placement.request_mix import Kind, Mix

_TYPICAL_PERCENT = 95
_MOST_TYPICAL = 128
_QUANTILE_PERCENT = 60


class Shape(NamedTuple):
    """What typical requests ask of GPUs: so many, each with so much left, of one of these products."""

    milli: int
    gpus: int
    products: tuple[str, ...] | None


@dataclass(frozen=True)
class Demand:
    """`cpu_steps` are the CPU amounts of typical requests in order; `weights[i][j]` is the weight of requests of
    shape j that ask for no more CPU than the i lowest steps; `total` the weight of all typical requests."""

    remainder: list[int]
    shapes: tuple[Shape, ...] = ()
    cpu_steps: tuple[int, ...] = ()
    weights: tuple[tuple[int, ...], ...] = ((),)
    total: int = 1
    cpu_per_gpu: int = 0
    scarcity: dict[str, int] = field(default_factory=dict)

    def unusable(self, cpu: int, remainders: Iterable[int], product: str) -> int:
        """Free milli-GPU that typical requests could not use, times their weights."""
        left = [milli for milli in remainders if milli]
        lost = self.total * sum(left)
        row = self.weights[bisect_right(self.cpu_steps, cpu)]
        for weight, shape in zip(row, self.shapes, strict=True):
            if not weight or (shape.products is not None and product not in shape.products):
                continue
            fitting = [milli for milli in left if milli >= shape.milli]
            if len(fitting) >= shape.gpus:
                lost -= weight * sum(fitting)
        return lost


def build(mix: Mix, nodes: Iterable[NodeState]) -> Demand:
    """The tables for this mix on these nodes."""
    stock = _Stock(nodes)
    typical = _typical(mix)
    shapes = tuple(sorted({Shape(k.milli, k.gpus, k.products) for k, _ in typical if k.gpus}, key=_order))
    steps = tuple(sorted({kind.cpu for kind, _ in typical if kind.gpus}))
    return Demand(
        remainder=remainder_values(_single_gpu_sizes(mix)),
        shapes=shapes,
        cpu_steps=steps,
        weights=_cumulated(typical, shapes, steps),
        total=max(1, sum(weight for _, weight in typical)),
        cpu_per_gpu=_cpu_per_gpu(mix, stock),
        scarcity=_scarcity(mix, stock),
    )


class _Stock:
    """What the fleet has: GPUs per product, and the commonest node shape."""

    def __init__(self, nodes: Iterable[NodeState]) -> None:
        self.gpus: Counter[str] = Counter()
        shapes: Counter[tuple[int, int]] = Counter()
        for node in nodes:
            if node.offered is not None and node.offered.gpus:
                self.gpus[node.offered.product] += node.offered.gpus
                shapes[node.offered.cpu, node.offered.gpus] += 1
        self.commonest = max(shapes, key=lambda shape: (shapes[shape], shape), default=(0, 0))


def product_of(node: NodeState) -> str:
    return node.facts.labels.get(names.GPU_PRODUCT_LABEL, "") if node.facts else ""


def _order(shape: Shape) -> tuple[int, int, tuple[str, ...]]:
    return shape.milli, shape.gpus, shape.products or ()


def _typical(mix: Mix) -> list[tuple[Kind, int]]:
    """The commonest kinds of request that together make up most of them."""
    ordered = sorted(
        mix.weights.items(), key=lambda entry: (entry[1], entry[0][:3], entry[0].products or ()), reverse=True
    )
    chosen: list[tuple[Kind, int]] = []
    reached = 0
    for kind, weight in ordered[:_MOST_TYPICAL]:
        if reached * 100 >= mix.total * _TYPICAL_PERCENT:
            break
        chosen.append((kind, weight))
        reached += weight
    return chosen


def _single_gpu_sizes(mix: Mix) -> dict[int, int]:
    sizes: Counter[int] = Counter()
    for kind, weight in mix.weights.items():
        if kind.gpus == 1:
            sizes[kind.milli] += weight
    return dict(sizes)


def _cumulated(
    typical: list[tuple[Kind, int]], shapes: tuple[Shape, ...], steps: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
    place = {shape: number for number, shape in enumerate(shapes)}
    table = [[0] * len(shapes) for _ in range(len(steps) + 1)]
    for kind, weight in typical:
        if kind.gpus:
            column = place[Shape(kind.milli, kind.gpus, kind.products)]
            for row in range(bisect_right(steps, kind.cpu), len(steps) + 1):
                table[row][column] += weight
    return tuple(tuple(row) for row in table)


def _cpu_per_gpu(mix: Mix, stock: _Stock) -> int:
    """CPU that goes with a GPU: a quantile over what is asked for, but less than the commonest node has."""
    demands = sorted(
        (kind.cpu * MILLI // (kind.gpus * kind.milli), weight * kind.gpus * kind.milli)
        for kind, weight in mix.weights.items()
        if kind.gpus
    )
    total = sum(amount for _, amount in demands)
    reached, quantile = 0, 0
    for ratio, amount in demands:
        if reached * 100 < total * _QUANTILE_PERCENT:
            quantile = ratio
        reached += amount
    cpu, gpus = stock.commonest
    return min(quantile, cpu * 999 // (1000 * gpus)) if gpus else quantile


def _scarcity(mix: Mix, stock: _Stock) -> dict[str, int]:
    """For each product how much of it is spoken for by requests that insist on it, in millionths."""
    named: Counter[str] = Counter()
    total = 0
    for kind, weight in mix.weights.items():
        amount = weight * kind.gpus * kind.milli
        total += amount
        known = [product for product in kind.products or () if stock.gpus[product]]
        for product in known:
            named[product] += amount // len(known)
    everything = sum(stock.gpus.values())
    if not total:
        return {}
    return {p: min(MICRO, MICRO * amount * everything // (total * stock.gpus[p])) for p, amount in named.items()}
