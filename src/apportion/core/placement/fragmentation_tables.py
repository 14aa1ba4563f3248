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
from apportion.core.placement.request_mix import Mix, RequestKind

_TYPICAL_PERCENT = 95
_MOST_TYPICAL = 128
_QUANTILE_PERCENT = 60


class TypicalRequest(NamedTuple):
    """What typical requests ask of GPUs: so many, each with so much left, of one of these products."""

    milli: int
    gpus: int
    products: tuple[str, ...] | None


@dataclass(frozen=True)
class FragmentationTables:
    """`typical` are the different requests for GPUs, `cpu_steps` the CPU amounts that go with them, in order;
    `weights[i][j]` is the weight of requests like `typical[j]` that ask for no more CPU than the i lowest steps;
    `total` the weight of all typical requests."""

    remainder: list[int]
    typical: tuple[TypicalRequest, ...] = ()
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
        for weight, asked in zip(row, self.typical, strict=True):
            if not weight or (asked.products is not None and product not in asked.products):
                continue
            fitting = [milli for milli in left if milli >= asked.milli]
            if len(fitting) >= asked.gpus:
                lost -= weight * sum(fitting)
        return lost


def build(mix: Mix, nodes: Iterable[NodeState]) -> FragmentationTables:
    """The tables for this mix on these nodes."""
    stock = _Stock(nodes)
    usual = _usual(mix)
    typical = tuple(sorted({TypicalRequest(k.milli, k.gpus, k.products) for k, _ in usual if k.gpus}, key=_order))
    steps = tuple(sorted({kind.cpu for kind, _ in usual if kind.gpus}))
    return FragmentationTables(
        remainder=remainder_values(_single_gpu_sizes(mix)),
        typical=typical,
        cpu_steps=steps,
        weights=_cumulated(usual, typical, steps),
        total=max(1, sum(weight for _, weight in usual)),
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


def _order(asked: TypicalRequest) -> tuple[int, int, tuple[str, ...]]:
    return asked.milli, asked.gpus, asked.products or ()


def _usual(mix: Mix) -> list[tuple[RequestKind, int]]:
    """The commonest kinds of request that together make up most of them."""
    ordered = sorted(
        mix.weights.items(), key=lambda entry: (entry[1], entry[0][:3], entry[0].products or ()), reverse=True
    )
    chosen: list[tuple[RequestKind, int]] = []
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
    usual: list[tuple[RequestKind, int]], typical: tuple[TypicalRequest, ...], steps: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
    columns = {asked: number for number, asked in enumerate(typical)}
    table = [[0] * len(typical) for _ in range(len(steps) + 1)]
    for kind, weight in usual:
        if kind.gpus:
            column = columns[TypicalRequest(kind.milli, kind.gpus, kind.products)]
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
