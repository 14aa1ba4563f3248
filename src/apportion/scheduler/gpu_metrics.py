"""Shared GPUs as numbers: what is shared and free of each, who holds it, and what each pod has of it.

Every few seconds the nodes that have changed are looked at, some at a time, and only numbers that have changed are set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from prometheus_client import Gauge

from apportion.apis.identities import NodeName
from apportion.core.ledger import GpuLedger
from apportion.core.node import NodeState
from apportion.view.view import View

_GPU = ["node", "gpu", "model"]
SHARED = Gauge("apportion_gpu_shared_mib", "Memory of the GPU that pods share, in MiB.", _GPU)
FREE = Gauge("apportion_gpu_free_mib", "Memory of the GPU that a new share can get, in MiB.", _GPU)
RESERVED = Gauge("apportion_gpu_reserved", "1 if a reservation pod holds the GPU.", _GPU)
SHARERS = Gauge("apportion_gpu_sharers", "Pods that share the GPU.", _GPU)
POD_SHARE = Gauge(
    "apportion_pod_gpu_share_mib", "Share of a pod of a GPU, in MiB.", ["namespace", "pod", "node", "gpu"]
)
PASS_SECONDS = 5.0
NODES_PER_STEP = 8

Series = tuple[Gauge, tuple[str, ...]]


class _Node(NamedTuple):
    """What is shown of a node, and of which state of it. `gpus` are the names of its GPUs in the labels."""

    state: NodeState
    version: int
    gpus: tuple[str, ...]
    values: dict[Series, int]


class GpuMetrics:
    """The numbers of one leadership."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._shown: dict[NodeName, _Node] = {}

    async def run(self) -> None:
        """Keep the numbers up to date; a process that does not lead has none."""
        try:
            while True:
                await self.update()
                await asyncio.sleep(PASS_SECONDS)
        finally:
            for shown in self._shown.values():
                _set(shown.values, {})

    async def update(self) -> None:
        nodes, changed = self._view.fleet.nodes, 0
        for name in sorted({*nodes, *self._shown}):
            changed += self._update(name, nodes.get(name))
            if changed == NODES_PER_STEP:
                changed = 0
                await asyncio.sleep(0)

    def _update(self, name: NodeName, node: NodeState | None) -> bool:
        """True if the node has changed."""
        shown = self._shown.get(name)
        before = shown.values if shown is not None else {}
        if node is None:
            _set(before, {})
            self._shown.pop(name, None)
            return True
        gpus = tuple(self._view.shares.uuid_of(uuid) or uuid for uuid in node.gpus)
        if shown is not None and (shown.state, shown.version, shown.gpus) == (node, node.version, gpus):
            return False
        values = dict(self._of_node(node, gpus))
        _set(before, values)
        self._shown[name] = _Node(node, node.version, gpus, values)
        return True

    def _of_node(self, node: NodeState, names: Sequence[str]) -> Iterator[tuple[Series, int]]:
        for name, gpu in zip(names, node.gpus.values(), strict=True):
            if gpu.facts.mig:
                continue
            labels = (node.name, name, gpu.facts.model.id)
            yield (RESERVED, labels), int(gpu.reservation is not None)
            yield (SHARERS, labels), len(gpu.shares)
            if gpu.facts.measured:  # in thousandths otherwise
                yield (SHARED, labels), gpu.shared_mib
                yield (FREE, labels), gpu.free_mib
                yield from self._of_pods(node, name, gpu)

    def _of_pods(self, node: NodeState, name: str, gpu: GpuLedger) -> Iterator[tuple[Series, int]]:
        for key, mib in gpu.shares.items():
            pod = node.pods.get(self._view.fleet.shares[key].owner)
            if pod is not None:
                yield (POD_SHARE, (pod.namespace, pod.name, node.name, name)), mib


def _set(before: Mapping[Series, int], after: Mapping[Series, int]) -> None:
    for series, value in after.items():
        if before.get(series) != value:
            gauge, labels = series
            gauge.labels(*labels).set(value)
    for gauge, labels in before.keys() - after.keys():
        with suppress(KeyError):
            gauge.remove(*labels)
