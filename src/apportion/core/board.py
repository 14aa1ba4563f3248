"""The fleet as arrays: one row per node, in the order of names.

The board follows the fleet's journal: before a decision it brings the rows of changed nodes up to date and
notes them in its log, so that each row of prices knows which nodes to work out anew. When nodes come or go it
is laid out from scratch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from apportion.apis import names
from apportion.core.facts import NodeFacts
from apportion.core.fleet import Fleet
from apportion.core.node import PODS, NodeState
from apportion.core.worth import product_of

Numbers = npt.NDArray[np.int64]

CPU, DEVICES = 1, 2  # columns of `free` that every board has
_LOG_PER_ROW = 8


class Log:
    """Rows that changed, in order. Old entries are dropped; who has not read them must look at everything."""

    def __init__(self, most: int) -> None:
        self._entries: list[int] = []
        self._dropped = 0
        self._most = most

    @property
    def end(self) -> int:
        return self._dropped + len(self._entries)

    def add(self, row: int) -> None:
        if len(self._entries) >= self._most:
            half = self._most // 2
            del self._entries[:half]
            self._dropped += half
        self._entries.append(row)

    def since(self, position: int) -> set[int] | None:
        """What changed since the log ended there; None if that was too long ago."""
        return set(self._entries[position - self._dropped :]) if position >= self._dropped else None


class Board:
    """`left` is what remains of each GPU in milli; `mib` and `memory` are its free and full MiB."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.layout = 0  # grows when rows or columns are laid out anew
        self.rows: list[NodeState] = []
        self.log = Log(0)
        self.facts_log = Log(0)
        self.free: Numbers = np.zeros((0, 0), np.int64)
        self._lay_out()

    def __len__(self) -> int:
        return len(self.rows)

    def sync(self) -> None:
        """Bring the board up to the fleet."""
        journal = self._fleet.journal
        if not journal:
            return
        if not self._refresh(journal):
            self._lay_out()
        journal.clear()

    def columns(self, resources: Sequence[str]) -> Numbers:
        """The columns of `free` for these resources; one that was never asked for gets a new column."""
        missing = [name for name in resources if name not in self._column]
        for name in missing:
            self._column[name] = len(self._column)
        if missing:
            added = [[node.free(name) for name in missing] for node in self.rows]
            self.free = np.hstack([self.free, np.array(added, np.int64).reshape(len(self.rows), len(missing))])
        return np.array([self._column[name] for name in resources], np.int64)

    def _lay_out(self) -> None:
        self.layout += 1
        self.rows = list(self._fleet)
        self._index = {node.name: number for number, node in enumerate(self.rows)}
        self._facts: list[NodeFacts | None] = [node.facts for node in self.rows]
        self._column = {PODS: 0, "cpu": CPU, names.NVIDIA_GPU: DEVICES}
        count = len(self.rows)
        most = _LOG_PER_ROW * (count + _LOG_PER_ROW)
        self.log, self.facts_log = Log(most), Log(most)
        width = max((len(node.remainders()) for node in self.rows), default=0)
        self.free = np.zeros((count, len(self._column)), np.int64)
        self.cpu_total: Numbers = np.zeros(count, np.int64)
        self.left: Numbers = np.zeros((count, width), np.int64)
        self.mib: Numbers = np.zeros((count, width), np.int64)
        self.memory: Numbers = np.zeros((count, width), np.int64)
        self.gpus: Numbers = np.zeros(count, np.int64)
        self.products: list[str] = []
        self.spotless = np.zeros(count, np.bool_)  # nodes that turn nobody away: no cordon, no taint
        self.product: Numbers = np.zeros(count, np.int64)
        self._product_number: dict[str, int] = {}
        for number, node in enumerate(self.rows):
            self._write(number, node)
            self._write_facts(number, node)

    def _refresh(self, names: set[str]) -> bool:
        """Write changed rows again; False if that is not enough."""
        for name in sorted(names):
            node, number = self._fleet.nodes.get(name), self._index.get(name)
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
        if len(left) > self.left.shape[1]:
            return False
        self.free[number] = [node.free(name) for name in self._column]
        self.left[number] = 0
        self.left[number, : len(left)] = left
        self.gpus[number] = len(left)
        self.mib[number] = self.memory[number] = 0
        if node.gpus:
            gpus = list(node.shareable())
            self.mib[number, : len(gpus)] = [gpu.free_mib for gpu in gpus]
            self.memory[number, : len(gpus)] = [gpu.memory_mib for gpu in gpus]
        return True

    def _write_facts(self, number: int, node: NodeState) -> None:
        assert node.facts is not None
        self.cpu_total[number] = node.facts.allocatable.get("cpu", 0)
        self.spotless[number] = not (node.facts.unschedulable or node.facts.taints)
        product = product_of(node)
        if product not in self._product_number:
            self._product_number[product] = len(self.products)
            self.products.append(product)
        self.product[number] = self._product_number[product]
