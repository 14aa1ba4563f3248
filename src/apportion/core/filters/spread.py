"""Topology spread: no domain may hold too many more matching pods than the emptiest one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from apportion.apis.identities import NodeName
from apportion.apis.pods import SpreadConstraint
from apportion.apis.request import Request
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import NodeFacts
from apportion.core.node import NodeState
from apportion.core.reasons import Code, Reason


class Domains(NamedTuple):
    """One constraint with the matching pods per domain."""

    constraint: SpreadConstraint
    counts: dict[str, int]
    fewest: int
    itself: int


class DomainTally:
    """One constraint with what each node contributes, so that nodes can be counted again one by one."""

    def __init__(self, fleet: Fleet, request: Request, constraint: SpreadConstraint) -> None:
        self._fleet = fleet
        self._request = request
        self._constraint = constraint
        self._hard = required(request)
        self._on_nodes: dict[NodeName, tuple[str, int]] = {}
        self._counts: dict[str, int] = {}
        self._members: Counter[str] = Counter()  # nodes of each domain

    def recount(self, name: NodeName) -> bool:
        """Count the pods of a node again; True if that makes a difference."""
        node = self._fleet.nodes.get(name)
        found = _on_node(node, self._request, self._constraint, self._hard) if node is not None else None
        before = self._on_nodes.get(name)
        if found == before:
            return False
        if before is not None:
            self._remove(name, *before)
        if found is not None:
            self._on_nodes[name] = found
            domain, count = found
            self._counts[domain] = self._counts.get(domain, 0) + count
            self._members[domain] += 1
        return True

    def domains(self) -> Domains:
        return _summed(self._request, self._constraint, self._counts)

    def _remove(self, name: NodeName, domain: str, count: int) -> None:
        del self._on_nodes[name]
        self._counts[domain] -= count
        self._members[domain] -= 1
        if not self._members[domain]:
            del self._counts[domain], self._members[domain]


def required(request: Request) -> list[SpreadConstraint]:
    return [each for each in request.rules.spread if each.when_unsatisfiable == "DoNotSchedule"]


def prepare(fleet: Fleet, request: Request) -> tuple[Domains, ...]:
    hard = required(request)
    return tuple(_domains(fleet, request, constraint, hard) for constraint in hard)


def against(facts: NodeFacts, known: Sequence[Domains]) -> Reason | None:
    for domains in known:
        constraint = domains.constraint
        value = facts.labels.get(constraint.topology_key)
        if value is None:
            return Reason(Code.SPREAD_LABEL, constraint.topology_key)
        there = domains.counts.get(value, 0)
        if there + domains.itself - domains.fewest > constraint.max_skew:
            return Reason(Code.SPREAD, constraint.topology_key, constraint.max_skew, 0, there)
    return None


def _domains(fleet: Fleet, request: Request, constraint: SpreadConstraint, hard: Sequence[SpreadConstraint]) -> Domains:
    counts: dict[str, int] = {}
    for node in fleet:
        found = _on_node(node, request, constraint, hard)
        if found is not None:
            domain, count = found
            counts[domain] = counts.get(domain, 0) + count
    return _summed(request, constraint, counts)


def _on_node(
    node: NodeState, request: Request, constraint: SpreadConstraint, hard: Sequence[SpreadConstraint]
) -> tuple[str, int] | None:
    """The node's domain and its matching pods; None if the node does not count: it lacks one of the keys, or the pod
    may not use it anyway."""
    facts = node.facts
    if facts is None or not all(other.topology_key in facts.labels for other in hard):
        return None
    if not request.rules.spreads_over(constraint, facts.name, facts.labels, facts.taints):
        return None
    return facts.labels[constraint.topology_key], _matching(node, request, constraint)


def _summed(request: Request, constraint: SpreadConstraint, counts: dict[str, int]) -> Domains:
    enough = len(counts) >= (constraint.min_domains or 1)
    selector = constraint.label_selector
    return Domains(
        constraint,
        counts,
        fewest=min(counts.values(), default=0) if enough else 0,
        itself=int(selector is not None and selector.matches(request.labels)),
    )


def _matching(node: NodeState, request: Request, constraint: SpreadConstraint) -> int:
    return sum(
        pod.namespace == request.namespace and not pod.terminating and constraint.counts(pod.labels)
        for pod in node.pods.values()
    )
