"""The fleet as arrays: one row per node, in the order of names.

The table follows the fleet's log: before a decision it brings the rows of changed nodes up to date and
notes them in its log, so that each row of prices knows which nodes to work out anew. When nodes come or go it
is laid out from scratch. Numbers that prices need together stand in one array, because taking rows out of
an array costs the same for one column as for ten.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from apportion.apis import names
from apportion.apis.identities import DeviceUUID, NodeName
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import NodeFacts
from apportion.core.ledger import GpuLedger
from apportion.core.node import MILLI, PODS, NodeState
from apportion.core.placement.fragmentation_tables import product_of
from apportion.core.records.recent_changes import RecentChanges

Numbers = npt.NDArray[np.int64]

POD_PLACES, DEVICES = 0, 1  # columns of `free` that every table has
CPU, GPU, IDLE, ALL_CPU, ALL_GPU, GPUS, BALANCE, PRODUCT = range(8)  # columns of `numbers`
_LARGEST = 2**63 - 1
_LOG_PER_ROW = 8


class NodeTable:
    """`free` is what pods may still ask for, `numbers` what prices read: free CPU, free milli-GPU and free whole
    GPUs, then the node's CPU, milli-GPU and GPUs, the product of the first two, and the number of the GPUs'
    product. `left` is what remains of each GPU in milli; `mib` and `memory` are its free and full MiB, `measured`
    whether these are known."""

    def __init__(self, fleet: Fleet) -> None:
        self.layout = 0  # grows when rows or columns are laid out anew
        self.rows: list[NodeState] = []
        self.log: RecentChanges[int] = RecentChanges(0)
        self.facts_log: RecentChanges[int] = RecentChanges(0)
        self.free: Numbers = np.zeros((0, 0), np.int64)
        self._seen = fleet.log.end
        self._lay_out(fleet)

    def __len__(self) -> int:
        return len(self.rows)

    def sync(self, fleet: Fleet) -> None:
        """Bring the table up to the fleet that it was made for."""
        end = fleet.log.end
        if end == self._seen:
            return
        changed = fleet.log.since(self._seen)
        if changed is None or not self._refresh(fleet, changed):
            self._lay_out(fleet)
        self._seen = end

    def number_of(self, node: NodeName) -> int | None:
        return self._index.get(node)

    def needs(self, resources: Mapping[str, int]) -> Numbers:
        """What a pod needs, column by column of `free`; a resource that was never asked for gets a new column."""
        missing = [name for name in resources if name not in self._column]
        for name in missing:
            self._column[name] = len(self._column)
        if missing:
            added = [[_bounded(node.free(name)) for name in missing] for node in self.rows]
            self.free = np.hstack([self.free, np.array(added, np.int64).reshape(len(self.rows), len(missing))])
        wanted: Numbers = np.full(len(self._column), -_LARGEST, np.int64)
        wanted[0] = 1
        for name, amount in resources.items():
            wanted[self._column[name]] = amount
        return wanted

    def _lay_out(self, fleet: Fleet) -> None:
        self.layout += 1
        self.rows = list(fleet)
        self._index = {node.name: number for number, node in enumerate(self.rows)}
        self._facts: list[NodeFacts | None] = [node.facts for node in self.rows]
        self._gpus: list[dict[DeviceUUID, GpuLedger]] = [{} for _ in self.rows]
        self._column = {PODS: POD_PLACES, names.NVIDIA_GPU: DEVICES}
        count = len(self.rows)
        most = _LOG_PER_ROW * (count + _LOG_PER_ROW)
        self.log, self.facts_log = RecentChanges(most), RecentChanges(most)
        width = max((len(node.remainders()) for node in self.rows), default=0)
        self.free = np.zeros((count, len(self._column)), np.int64)
        self.numbers: Numbers = np.zeros((count, PRODUCT + 1), np.int64)
        self.left: Numbers = np.zeros((count, width), np.int64)
        self.mib: Numbers = np.zeros((count, width), np.int64)
        self.memory: Numbers = np.zeros((count, width), np.int64)
        self.measured = np.zeros((count, width), np.bool_)
        self.products: list[str] = []
        self.spotless = np.zeros(count, np.bool_)  # nodes that exclude no pod: no cordon, no taint
        self._product_number: dict[str, int] = {}
        for number, node in enumerate(self.rows):
            self._write(number, node)
            self._write_facts(number, node)

    def _refresh(self, fleet: Fleet, names: set[NodeName]) -> bool:
        """Write changed rows again; False if that is not enough."""
        for name in sorted(names):
            node, number = fleet.nodes.get(name), self._index.get(name)
            there = node is not None and node.facts is not None
            if not there and number is None:
                continue
            if node is None or not there or number is None or node is not self.rows[number]:
                return False
            if not self._write(number, node):
                return False
            self.log.add(number)
            if node.facts is not self._facts[number]:
                self._facts[number] = node.facts
                self._write_facts(number, node)
                self.facts_log.add(number)
        return True

    def _write(self, number: int, node: NodeState) -> bool:
        left = node.remainders()
        if node.gpus is not self._gpus[number] or not node.gpus:
            if len(left) > self.left.shape[1]:
                return False
            self._write_gpus(number, node, len(left))
        self.free[number] = [_bounded(node.free(name)) for name in self._column]
        self.numbers[number, : IDLE + 1] = (node.free_cpu, sum(left), left.count(MILLI))
        self.left[number, : len(left)] = left
        if node.gpus:
            self.mib[number, : len(left)] = [gpu.free_mib for gpu in node.shareable()]
        return True

    def _write_gpus(self, number: int, node: NodeState, count: int) -> None:
        """What changes only with the GPUs themselves."""
        self._gpus[number] = node.gpus
        self.left[number] = self.mib[number] = self.memory[number] = 0
        if node.gpus:
            self.memory[number, :count] = [gpu.memory_mib for gpu in node.shareable()]
            self.measured[number, :count] = [gpu.facts.measured for gpu in node.shareable()]
        self._write_totals(number, node, count)

    def _write_facts(self, number: int, node: NodeState) -> None:
        assert node.facts is not None
        self.spotless[number] = not (node.facts.unschedulable or node.facts.taints)
        product = product_of(node)
        if product not in self._product_number:
            self._product_number[product] = len(self.products)
            self.products.append(product)
        self.numbers[number, PRODUCT] = self._product_number[product]
        self._write_totals(number, node, int(self.numbers[number, GPUS]))

    def _write_totals(self, number: int, node: NodeState, count: int) -> None:
        cpu, gpu = node.all_cpu, MILLI * max(1, count)
        # Where a node has no CPU there is nothing to balance: whatever is divided by this is nothing.
        self.numbers[number, ALL_CPU : BALANCE + 1] = (cpu, gpu, count, cpu * gpu if cpu > 0 else _LARGEST)


def _bounded(amount: int) -> int:
    """What is free may be less than nothing by any amount where a node shrank under its pods."""
    return amount if -_LARGEST <= amount <= _LARGEST else max(-_LARGEST, min(amount, _LARGEST))
