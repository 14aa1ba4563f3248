"""Why each node cannot take a pod, gathered in steps and kept up to date while the fleet changes in between.

Trial changes of the fleet are made in a `trial`; what it changes and undoes does not count as a change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from apportion.apis.identities import NodeName
from apportion.apis.request import Request
from apportion.core.filters import Checks
from apportion.core.fleet import Fleet
from apportion.core.placement.node_placement import placement
from apportion.core.policies import Policy
from apportion.core.reasons import Code, Reason

NODES_PER_STEP = 64


class NodeReasons:
    """One request on one fleet. `reasons` is by node."""

    def __init__(self, fleet: Fleet, request: Request, policy: Policy) -> None:
        self.fleet = fleet
        self.request = request
        self.policy = policy
        self.reasons: dict[NodeName, Reason] = {}
        self._seen = fleet.log.end
        self._changed: set[NodeName] | None = None  # nodes to look at again; None: all of them

    def gather(self) -> Iterator[None]:
        """Look at every node that is new or has changed since it was looked at."""
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
        checks = Checks(self.fleet, self.request)
        nowhere = Reason(Code.NO_PLACE, self.request.slices[0].profile if self.request.slices else "")
        for number, name in enumerate(names, 1):
            node = self.fleet.nodes.get(name)
            if node is None or node.facts is None:
                self.reasons.pop(name, None)
            else:
                self.reasons[name] = checks.against(node) or nowhere
            if number % NODES_PER_STEP == 0:
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
            self._seen = self.fleet.log.end

    def _note_changes(self) -> None:
        changed = self.fleet.log.since(self._seen)
        self._seen = self.fleet.log.end
        if changed is None or (changed and self._looks_beyond_the_node()):
            self._changed = None
        elif self._changed is not None:
            self._changed |= changed

    def _looks_beyond_the_node(self) -> bool:
        """A change on one node can change the result for another."""
        return bool(self.request.rules.about_pods or self.request.rules.volume_claims or self.fleet.apart)


def fits(survey: NodeReasons, name: NodeName, request: Request) -> bool:
    """Can this node take the request now?"""
    node = survey.fleet.nodes.get(name)
    if node is None or Checks(survey.fleet, request).against(node) is not None:
        return False
    return placement(node, request, survey.policy.for_request(request)) is not None
