"""Which nodes can take a pod: kube-scheduler's node rules first, then the GPUs.

`feasible` looks at every node and says for each excluded node which rule excludes it. What concerns
all nodes at once (other pods, volumes) is computed once per request in `Checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from apportion.apis.identities import NodeName
from apportion.apis.request import Request
from apportion.core.filters import gpus, nodes, podaffinity, resources, spread, storage
from apportion.core.fleet import Fleet
from apportion.core.node import NodeState
from apportion.core.reasons import Code, Reason

__all__ = ["Checks", "FilterResult", "feasible"]


class FilterResult(NamedTuple):
    nodes: tuple[NodeName, ...]
    reasons: Mapping[NodeName, Reason]


class Checks:
    """All rules for one request on the current fleet."""

    __slots__ = ("_everywhere", "_fleet", "_neighbours", "_request", "_spread")

    def __init__(self, fleet: Fleet, request: Request) -> None:
        self._fleet = fleet
        self._request = request
        self._everywhere = storage.anywhere(fleet, request) if request.rules.volume_claims else None
        self._spread = spread.prepare(fleet, request) if request.rules.spread else ()
        self._neighbours = podaffinity.prepare(fleet, request)

    def against(self, node: NodeState) -> Reason | None:
        """The first rule that excludes this node for the pod, None if it can run there."""
        return self.against_node(node) or gpus.against(node, self._request)

    def against_node(self, node: NodeState) -> Reason | None:
        """The same without the GPUs."""
        request, facts = self._request, node.facts
        if facts is None:
            return Reason(Code.WRONG_NODE)
        reason = nodes.against(node, request) or resources.against(node, request) or self._everywhere
        if reason is None and request.rules.volume_claims:
            reason = storage.against(self._fleet, node, request)
        if reason is None and self._spread:
            reason = spread.against(facts, self._spread)
        if reason is None and self._neighbours is not None:
            reason = podaffinity.against(facts, request, self._neighbours)
        return reason


def feasible(fleet: Fleet, request: Request) -> FilterResult:
    checks = Checks(fleet, request)
    fitting: list[NodeName] = []
    reasons: dict[NodeName, Reason] = {}
    for node in fleet:
        reason = checks.against(node)
        if reason is None:
            fitting.append(node.name)
        else:
            reasons[node.name] = reason
    return FilterResult(tuple(fitting), reasons)
