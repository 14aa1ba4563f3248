"""How many pods count for the rules of one request, kept up to date node by node.

A decision counts the pods of all nodes at once (`podaffinity.prepare`, `spread.prepare`). An explanation asks the same
many times, and after trial changes of single nodes: it counts every node once, and from then on only what changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from apportion.apis.identities import NodeName
from apportion.apis.request import Request
from apportion.core.filters import podaffinity, spread
from apportion.core.filters.podaffinity import Neighbours
from apportion.core.filters.spread import Domains, DomainTally
from apportion.core.fleet import Fleet


class PodCounts:
    """Counts nothing until it is told of nodes. `visited` is how many pods were looked at so far."""

    def __init__(self, fleet: Fleet, request: Request) -> None:
        self._fleet = fleet
        self._request = request
        self._neighbours = podaffinity.nobody(fleet, request)
        self._tallies = [DomainTally(fleet, request, constraint) for constraint in spread.required(request)]
        self._on_nodes: dict[NodeName, Neighbours] = {}
        self._domains: tuple[Domains, ...] | None = None
        self.visited = 0

    @property
    def neighbours(self) -> Neighbours | None:
        """None if no rule of the request or of an existing pod is about them."""
        rules = self._request.rules
        return self._neighbours if rules.affinity or rules.anti_affinity or self._neighbours.kept_apart else None

    @property
    def domains(self) -> tuple[Domains, ...]:
        if self._domains is None:
            self._domains = tuple(tally.domains() for tally in self._tallies)
        return self._domains

    @property
    def relevant(self) -> Sequence[NodeName]:
        """Nodes whose pods can count; pods on other nodes do not have to be looked at."""
        if self._tallies or self._own_rules:
            return [node.name for node in self._fleet]
        return sorted(set(self._fleet.apart.values()))

    def recount(self, name: NodeName) -> bool:
        """Count the pods of a node again; True if the result is another one, which can matter to all nodes."""
        if not self._matter and name not in self._on_nodes:
            return False
        changed = self._recount_neighbours(name)
        for tally in self._tallies:
            changed |= tally.recount(name)
        if changed:
            self._domains = None
        node = self._fleet.nodes.get(name)
        self.visited += len(node.pods) if node is not None else 0
        return changed

    @property
    def by_namespace(self) -> bool:
        """Labels of namespaces can count."""
        return bool(self._own_rules or self._fleet.apart)

    def pods_on(self, names: Iterable[NodeName]) -> int:
        """How many pods have to be looked at to count these nodes again."""
        if not self._matter:
            return 0
        return sum(len(self._fleet.nodes[name].pods) for name in names if name in self._fleet.nodes)

    def _recount_neighbours(self, name: NodeName) -> bool:
        before = self._on_nodes.pop(name, None)
        node = self._fleet.nodes.get(name)
        found = podaffinity.on_node(self._fleet, node, self._request) if node is not None else None
        if found is not None and found.counts_any:
            self._on_nodes[name] = found
        else:
            found = None
        if found == before:
            return False
        if before is not None:
            self._neighbours.subtract(before)
        if found is not None:
            self._neighbours.add(found)
        return True

    @property
    def _matter(self) -> bool:
        """There are rules about pods: of the request, or of existing pods."""
        return bool(self._tallies or self._own_rules or self._fleet.apart)

    @property
    def _own_rules(self) -> bool:
        return bool(self._request.rules.affinity or self._request.rules.anti_affinity)
