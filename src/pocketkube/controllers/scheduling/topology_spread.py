"""Topology spread constraints: no domain may hold too many more matching pods than the emptiest one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from apportion.apis.pods import SpreadConstraint
from pocketkube.controllers.scheduling.cluster_state import ClusterState, NodeFacts, NodeState, PodFacts
from pocketkube.controllers.scheduling.refusals import Refusal

_SKEWED = Refusal("node(s) didn't match pod topology spread constraints", preemption_helps=True)
_NO_LABEL = Refusal("node(s) didn't match pod topology spread constraints (missing required label)")


class Domains(NamedTuple):
    """One constraint with the number of matching pods in each domain."""

    constraint: SpreadConstraint
    counts: dict[str, int]
    fewest: int
    itself: int


def prepare(cluster: ClusterState, pod: PodFacts) -> tuple[Domains, ...]:
    hard = [each for each in pod.rules.spread if each.when_unsatisfiable == "DoNotSchedule"]
    keys = {each.topology_key for each in hard}
    return tuple(_domains(cluster, pod, constraint, keys) for constraint in hard)


def against(facts: NodeFacts, known: Sequence[Domains]) -> Refusal | None:
    for domains in known:
        value = facts.labels.get(domains.constraint.topology_key)
        if value is None:
            return _NO_LABEL
        if domains.counts.get(value, 0) + domains.itself - domains.fewest > domains.constraint.max_skew:
            return _SKEWED
    return None


def _domains(cluster: ClusterState, pod: PodFacts, constraint: SpreadConstraint, keys: set[str]) -> Domains:
    counts: dict[str, int] = {}
    for node in cluster:
        # Nodes that lack one of the keys do not count, nor do those that the pod may not use anyway.
        facts = node.facts
        if keys <= facts.labels.keys() and pod.rules.spreads_over(constraint, facts.name, facts.labels, facts.taints):
            value = facts.labels[constraint.topology_key]
            counts[value] = counts.get(value, 0) + _matching(node, pod, constraint)
    enough = len(counts) >= (constraint.min_domains or 1)
    selector = constraint.label_selector
    return Domains(
        constraint,
        counts,
        fewest=min(counts.values(), default=0) if enough else 0,
        itself=int(selector is not None and selector.matches(pod.labels)),
    )


def _matching(node: NodeState, pod: PodFacts, constraint: SpreadConstraint) -> int:
    return sum(
        other.namespace == pod.namespace and not other.terminating and constraint.counts(other.labels)
        for other in node.pods.values()
    )
