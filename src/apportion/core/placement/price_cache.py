"""Rows of prices: for each class of request what every node would cost, kept up to date.

Pods of one class ask for the same and follow the same rules, so one row serves them all. A decision then
costs the nodes that changed since the class was last asked for, and a look for the lowest price. The prices
are those of `node_prices` and `node_placement`, computed for many nodes at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from apportion.apis.identities import NodeName
from apportion.apis.noderules import NodeRules
from apportion.apis.request import Request
from apportion.core import equivalence
from apportion.core.filters import gpus as gpu_rules
from apportion.core.filters import nodes as node_rules
from apportion.core.fleet import Fleet
from apportion.core.node import NodeState
from apportion.core.placement import array_prices, node_placement
from apportion.core.placement.node_prices import MILLI
from apportion.core.placement.node_table import NodeTable, Numbers
from apportion.core.placement.preferences import node_preference
from apportion.core.policies import Policy

NEVER = np.iinfo(np.int64).max
_PREFERENCE = 1 << 45  # outweighs every price
_MOST_CLASSES = 512
_NO_RULES = NodeRules()

Flags = npt.NDArray[np.bool_]


class Ranking:
    """The rows of one policy on one table of nodes."""

    def __init__(self, nodes: NodeTable, policy: Policy, *, every_node: bool = False) -> None:
        """With `every_node` nothing is kept: each decision is one pass over all nodes, for a benchmark to compare."""
        self._nodes = nodes
        self._policy = policy
        self._every_node = every_node
        self._rows: dict[Hashable, _Row] = {}
        self._valid: tuple[int, int] | None = None
        self._usability: Numbers | None = None
        self._seen = 0

    def best(self, fleet: Fleet, request: Request) -> node_placement.NodePlacement | None:
        """A place on the node with the lowest price, the first by name among equals; None if no node can take it.

        Nodes to which the pod could not be bound come last."""
        nodes = self._nodes
        nodes.sync(fleet)
        valid = (nodes.layout, self._policy.edition)
        if valid != self._valid:
            self._valid = valid
            self._rows.clear()
            self._usability = None
        if not nodes.rows:
            return None
        usability = self._follow()
        row = self._row(request, usability)
        row.refresh(usability, everything=self._every_node)
        failed = fleet.failed_nodes.get(request.uid)
        number = self._best_but(failed, row.prices) if failed else int(row.prices.argmin())
        return row.placement(number, request) if row.prices[number] != NEVER else None

    def _best_but(self, failed: Sequence[NodeName], prices: Numbers) -> int:
        """One of the other nodes, or the first of these with a price."""
        last = [number for node in failed if (number := self._nodes.number_of(node)) is not None]
        others = prices.copy()
        others[last] = NEVER
        found = int(others.argmin())
        if others[found] != NEVER:
            return found
        return next((number for number in last if prices[number] != NEVER), found)

    def _follow(self) -> Numbers:
        """Keep what every price on a node needs up to date, once for all classes."""
        nodes = self._nodes
        changed = nodes.log.since(self._seen)
        self._seen = nodes.log.end
        if self._usability is None or changed is None or self._every_node:
            self._usability = array_prices.usability(nodes, np.arange(len(nodes)), self._policy)
        elif changed:
            rows = np.fromiter(changed, np.int64, len(changed))
            self._usability[rows] = array_prices.usability(nodes, rows, self._policy)
        return self._usability

    def _row(self, request: Request, usability: Numbers) -> _Row:
        key = equivalence.node_class(request)
        row = self._rows.pop(key, None)
        if row is None:
            if len(self._rows) >= _MOST_CLASSES:
                del self._rows[next(iter(self._rows))]  # the one that was asked for longest ago
            row = _Row(self._nodes, request, self._policy, usability)
        self._rows[key] = row
        return row


class _Row:
    """One class of request on every node."""

    def __init__(self, nodes: NodeTable, request: Request, policy: Policy, usability: Numbers) -> None:
        self._nodes = nodes
        self._request = request
        self._policy = policy
        self._needs = nodes.needs(request.resources)
        self._slices: dict[Hashable, int | None] = {}
        count = len(nodes)
        self.prices: Numbers = np.full(count, NEVER, np.int64)
        self._gpu: Numbers = np.zeros(count, np.int64)
        self._allowed: Flags = np.zeros(count, np.bool_)
        self._preference: Numbers = np.zeros(count, np.int64)
        self._seen, self._seen_facts = nodes.log.end, nodes.facts_log.end
        self._read_facts(range(count))
        self._price(np.arange(count), usability)

    def refresh(self, usability: Numbers, *, everything: bool = False) -> None:
        nodes = self._nodes
        anew = nodes.facts_log.since(self._seen_facts)
        if anew is None or anew:
            self._read_facts(range(len(nodes)) if anew is None else anew)
        changed = nodes.log.since(self._seen)
        if everything or changed is None:
            self._price(np.arange(len(nodes)), usability)
        elif changed:
            self._price(np.fromiter(changed, np.int64, len(changed)), usability)
        self._seen, self._seen_facts = nodes.log.end, nodes.facts_log.end

    def placement(self, number: int, request: Request) -> node_placement.NodePlacement:
        node = self._nodes.rows[number]
        if self._one_by_one:
            found = node_placement.placement(node, request, self._policy)
            assert found is not None, "a node with a price has a place"
            return found
        price = int(self.prices[number]) + _PREFERENCE * int(self._preference[number])
        return node_placement.numbered_placement(node, request, price, self._gpus_on(node, number, request))

    def _gpus_on(self, node: NodeState, number: int, request: Request) -> tuple[int, ...]:
        if request.share is not None:
            return (int(self._gpu[number]),)
        if not request.whole_gpus:
            return ()
        left = self._nodes.left[number, : len(node.gpus) or None]
        return tuple(int(gpu) for gpu in np.flatnonzero(left == MILLI)[: request.whole_gpus])

    def _read_facts(self, numbers: range | set[int]) -> None:
        """What only labels, taints and cordons decide."""
        request = self._request
        anywhere = request.rules == _NO_RULES and not request.node_name and not request.slices
        for number in numbers:
            if anywhere and self._nodes.spotless[number]:
                self._allowed[number], self._preference[number] = True, 0
                continue
            facts = self._nodes.rows[number].facts
            assert facts is not None
            allowed = node_rules.against_facts(facts, request) is None
            if request.slices:
                allowed = allowed and gpu_rules.mig_capable(facts)
            self._allowed[number] = allowed
            self._preference[number] = node_preference(facts, request)
        self._prefers = bool(self._preference.any())

    def _price(self, rows: Numbers, usability: Numbers) -> None:
        nodes = self._nodes
        self.prices[rows] = NEVER
        free = nodes.free.take(rows, axis=0)
        if free.shape[1] != len(self._needs):
            self._needs = nodes.needs(self._request.resources)
        rows = rows[np.logical_and.reduce(free >= self._needs, axis=1) & self._allowed.take(rows)]
        if not len(rows):
            return
        if self._one_by_one:
            prices = np.array([self._price_one(nodes.rows[number]) for number in rows], np.int64)
        else:
            known = usability.take(rows, axis=0)
            prices, self._gpu[rows] = array_prices.prices(nodes, rows, self._request, self._policy, known, NEVER)
        if self._prefers:
            prices = np.where(prices == NEVER, NEVER, prices - _PREFERENCE * self._preference[rows])
        self.prices[rows] = prices

    @property
    def _one_by_one(self) -> bool:
        share = self._request.share
        return bool(self._request.slices) or (share is not None and share.devices > 1)

    def _price_one(self, node: NodeState) -> int:
        if not self._request.slices:
            found = node_placement.placement(node, self._request, self._policy)
            return found.price if found is not None else NEVER
        if not node.ready:
            return NEVER
        grids = gpu_rules.sliceable(node)
        key = tuple((id(grid), state) for grid, state in grids)
        if key not in self._slices:
            wants = [want.profile for want in self._request.slices]
            priced = node_placement.slice_price(grids, wants, self._policy)
            self._slices[key] = priced[0] if priced else None
        price = self._slices[key]
        return NEVER if price is None else price + node_placement.node_part(node, self._policy)
