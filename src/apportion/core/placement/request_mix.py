"""What is usually asked for: a histogram of recent requests.

Learned as pods come, with decay: once the weights add up to a full window all are halved, so that old requests lose
weight. Or given, from a list of requests. A pod counts once, however often it is tried.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from apportion.apis import names
from apportion.apis.identities import PodUID
from apportion.apis.request import Request
from apportion.core.node import CPU, MOST_CPU

MILLI = 1000
_WINDOW = 8192  # pods
_WEIGHT = 1 << 10  # of one pod, so that halving does not wipe out the rare ones at once
_REMEMBERED = 1 << 16


class RequestKind(NamedTuple):
    """Requests that are alike for the purpose: CPU, GPUs, milli of each, and the products they require."""

    cpu: int
    gpus: int
    milli: int
    products: tuple[str, ...] | None = None


class Mix:
    """The histogram. `generation` grows when it has changed enough for tables made from it to be stale."""

    def __init__(self, *, learning: bool = True) -> None:
        self.weights: dict[RequestKind, int] = {}
        self.total = 0
        self.generation = 0
        self.learning = learning
        self._seen: set[PodUID] = set()
        self._fresh = 0

    @staticmethod
    def of(requests: Iterable[Request]) -> Mix:
        """A mix that is given and does not learn."""
        mix = Mix(learning=False)
        for request in requests:
            mix._count(kind_of(request))
        mix.generation = 1
        return mix

    def observe(self, request: Request) -> None:
        if not self.learning or request.slices or request.uid in self._seen:
            return
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen.add(request.uid)
        self._count(kind_of(request))
        self._fresh += 1
        if self.total >= _WINDOW * _WEIGHT:
            self._halve()
        # Tables are made anew when a quarter of what they would be made from is new.
        if self._fresh * 4 * _WEIGHT >= self.total or self._fresh >= _WINDOW // 8:
            self._fresh = 0
            self.generation += 1

    def _count(self, kind: RequestKind) -> None:
        self.weights[kind] = self.weights.get(kind, 0) + _WEIGHT
        self.total += _WEIGHT

    def _halve(self) -> None:
        self.weights = {kind: weight // 2 for kind, weight in self.weights.items() if weight > 1}
        self.total = sum(self.weights.values())


def kind_of(request: Request) -> RequestKind:
    cpu = min(request.resources.get(CPU, 0), MOST_CPU)
    share = request.share
    if share is not None:
        # A share in MiB has no size in milli before its device is known; it counts as whole.
        return RequestKind(cpu, share.devices, share.milli or MILLI, products_of(request))
    return RequestKind(cpu, request.whole_gpus, MILLI if request.whole_gpus else 0, products_of(request))


def products_of(request: Request) -> tuple[str, ...] | None:
    """The GPU products that a pod's own rules confine it to; None if they confine it to none."""
    chosen = [value for key, value in request.rules.selector if key == names.GPU_PRODUCT_LABEL]
    if chosen:
        return tuple(chosen)
    required = request.rules.required
    if required is None or not required.node_selector_terms:
        return None
    products: set[str] = set()
    for term in required.node_selector_terms:
        named = [
            expression.values
            for expression in term.match_expressions
            if expression.key == names.GPU_PRODUCT_LABEL and expression.operator == "In"
        ]
        if not named:
            return None
        products.update(named[0])
    return tuple(sorted(products))
