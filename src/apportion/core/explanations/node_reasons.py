"""Why each node cannot take a pod, gathered in steps and kept up to date while the fleet changes in between.

Pods that count for the rules of the request are counted once; after a change only those of the changed nodes are
counted again. Trial changes of the fleet are made in a `trial`; what it changes and undoes does not count as a change.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from apportion.apis.identities import NodeName
from apportion.apis.request import Request
from apportion.core.filters import Checks
from apportion.core.filters.pod_counts import PodCounts
from apportion.core.fleet import Fleet
from apportion.core.operations import Operation
from apportion.core.placement.node_placement import placement
from apportion.core.policies import Policy
from apportion.core.reasons import Code, Reason

NODES_PER_STEP = 64
PODS_PER_STEP = 256
_MOST_PODS = 4 * PODS_PER_STEP  # if pods of changed nodes are more than these, all are counted again, in steps


class NodeReasons:
    """One request on one fleet. `reasons` is by node."""

    def __init__(self, fleet: Fleet, request: Request, policy: Policy) -> None:
        self.fleet = fleet
        self.request = request
        self.policy = policy
        self.reasons: dict[NodeName, Reason] = {}
        self._seen = fleet.log.end
        self._changed: set[NodeName] | None = None  # nodes to look at again; None: all of them
        self._counts = PodCounts(fleet, request)
        self._counted = False
        self._namespaces = fleet.namespace_changes

    def gather(self) -> Iterator[None]:
        """Look at every node that is new or has changed since it was looked at."""
        self._note_changes()
        if not self._counted:
            yield from count(self._counts)
            self._counted = True
            self._note_changes()
        changed, self._changed = self._changed, set()
        if changed is None:
            self.reasons.clear()
        try:
            yield from self._look([node.name for node in self.fleet] if changed is None else sorted(changed))
        except GeneratorExit:  # closed before the end
            self._changed = None
            raise

    def _look(self, names: list[NodeName]) -> Iterator[None]:
        nowhere = Reason(Code.NO_PLACE, self.request.slices[0].profile if self.request.slices else "")
        for start in range(0, len(names), NODES_PER_STEP):
            self._note_changes()
            checks = Checks(self.fleet, self.request, self._counts)
            for name in names[start : start + NODES_PER_STEP]:
                node = self.fleet.nodes.get(name)
                if node is None or node.facts is None:
                    self.reasons.pop(name, None)
                else:
                    self.reasons[name] = checks.against(node) or nowhere
            if start + NODES_PER_STEP <= len(names):
                yield

    @property
    def current(self) -> bool:
        """Nothing has changed since the nodes were looked at."""
        self._note_changes()
        return self._changed is not None and not self._changed

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Changes of the fleet in this block are undone at its end. The block must not pause."""
        self._note_changes()
        mark = self.fleet.checkpoint()
        try:
            yield
        finally:
            self.fleet.rollback(mark)
            self._count_changes()

    @contextmanager
    def assuming(self, operations: Sequence[Operation]) -> Iterator[None]:
        """A block in which these operations are carried out on the fleet, always the same for one survey: every step is
        made in such a block. Raises LedgerError if they cannot be carried out any more."""
        self._note_changes()
        mark = self.fleet.checkpoint()
        try:
            for operation in operations:
                operation.apply(self.fleet)
            self._count_changes()
            yield
        finally:
            self.fleet.rollback(mark)
            self._seen = self.fleet.log.end

    def fits(self, name: NodeName, request: Request) -> bool:
        """Can this node take the request, which has the survey's rules, in a trial?"""
        self._count_changes()
        node = self.fleet.nodes.get(name)
        if node is None or not self._counted or Checks(self.fleet, request, self._counts).against(node) is not None:
            return False
        return placement(node, request, self.policy.for_request(request)) is not None

    def counts_for(self, request: Request) -> Generator[None, None, PodCounts]:
        """The counts for the pod with changes; other rules count other pods."""
        if request.rules == self.request.rules and self._counted:
            return self._counts
        counts = PodCounts(self.fleet, request)
        yield from count(counts)
        return counts

    def _note_changes(self) -> None:
        changed, others = self._count_changes()
        if changed is None or others or (changed and self.request.has_volume_claims):
            self._changed = None
        elif self._changed is not None:
            self._changed |= changed

    def _count_changes(self) -> tuple[set[NodeName] | None, bool]:
        """Follow the fleet: nodes that have changed, and whether that can change the result for other nodes."""
        changed = self.fleet.log.since(self._seen)
        self._seen = self.fleet.log.end
        namespaces, self._namespaces = self._namespaces, self.fleet.namespace_changes
        relabelled = namespaces != self._namespaces and self._counts.by_namespace
        if changed is None or relabelled or (len(changed) > 1 and self._counts.pods_on(changed) > _MOST_PODS):
            self._counts, self._counted = PodCounts(self.fleet, self.request), False
            return None, True
        others = [name for name in changed if self._counts.recount(name)]
        return changed, bool(others)


def count(counts: PodCounts) -> Iterator[None]:
    """Count the pods of all nodes, in steps."""
    pods, nodes = counts.visited, 0
    for name in counts.relevant:
        counts.recount(name)
        nodes += 1
        if nodes >= NODES_PER_STEP or counts.visited - pods >= PODS_PER_STEP:
            yield
            pods, nodes = counts.visited, 0
