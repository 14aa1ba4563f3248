"""Topology spread: no domain may hold too many more matching pods than the emptiest one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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


def prepare(fleet: Fleet, request: Request) -> tuple[Domains, ...]:
    hard = [c for c in request.rules.spread if c.when_unsatisfiable == "DoNotSchedule"]
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
        facts = node.facts
        assert facts is not None
        # Nodes that lack one of the keys do not count, nor do those that the pod may not use anyway.
        counted = all(other.topology_key in facts.labels for other in hard)
        if counted and request.rules.spreads_over(constraint, facts.name, facts.labels, facts.taints):
            value = facts.labels[constraint.topology_key]
            counts[value] = counts.get(value, 0) + _matching(node, request, constraint)
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
