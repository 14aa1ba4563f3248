"""What a pod would rather have: node labels, no PreferNoSchedule taints, affinity and anti-affinity to pods.

A preference outweighs the packing policy, and never keeps a pod from running.
"""

from __future__ import annotations

from collections import Counter

from apportion.apis.pods import SpreadConstraint
from apportion.apis.request import Request
from apportion.apis.taints import tolerated
from apportion.core.filters import podaffinity
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import NodeFacts
from apportion.core.node import NodeState

SOFT_TAINT = "PreferNoSchedule"
_TAINT_WEIGHT = 100
_SPREAD_WEIGHT = 10
_MOST_WEIGHT = 1 << 17  # Kubernetes allows 100 per preference; a thousand of them are as good as more

Pair = tuple[str, str]


class Preferences:
    """What one request prefers on the fleet as it is now."""

    def __init__(self, fleet: Fleet, request: Request) -> None:
        self._request = request
        self._pairs = _weights(fleet, request) if prefers_by_pods(request) else Counter()

    def of(self, node: NodeState) -> int:
        """Higher is better."""
        assert node.facts is not None
        weight = node_preference(node.facts, self._request)
        if self._pairs:
            weight += sum(self._pairs[pair] for pair in node.facts.labels.items())
        return weight


def prefers_by_pods(request: Request) -> bool:
    rules = request.rules
    soft_spread = any(c.when_unsatisfiable != "DoNotSchedule" for c in rules.spread)
    return bool(rules.preferred_affinity or rules.preferred_anti_affinity or soft_spread)


def node_preference(facts: NodeFacts, request: Request) -> int:
    """What the node alone decides."""
    weight = 0
    for entry in request.rules.preferred:
        if entry.preference.matches(facts.name, facts.labels):
            weight += entry.weight
    for taint in facts.taints:
        if taint.effect == SOFT_TAINT and not tolerated(taint, request.rules.tolerations):
            weight -= _TAINT_WEIGHT
    return max(-_MOST_WEIGHT, min(weight, _MOST_WEIGHT))


def _weights(fleet: Fleet, request: Request) -> Counter[Pair]:
    """How much each topology pair is preferred, by the pods that are there."""
    pairs: Counter[Pair] = Counter()
    rules = request.rules
    terms = [(entry.weight, entry.pod_affinity_term) for entry in rules.preferred_affinity]
    terms += [(-entry.weight, entry.pod_affinity_term) for entry in rules.preferred_anti_affinity]
    soft = [c for c in rules.spread if c.when_unsatisfiable != "DoNotSchedule"]
    for node in fleet:
        assert node.facts is not None
        labels = node.facts.labels
        for pod in node.pods.values():
            for weight, term in terms:
                if term.topology_key in labels and podaffinity.matches(fleet, term, request, pod):
                    pairs[term.topology_key, labels[term.topology_key]] += weight
            for constraint in soft:
                if constraint.topology_key in labels and _spread_counts(constraint, request, pod):
                    pairs[constraint.topology_key, labels[constraint.topology_key]] -= _SPREAD_WEIGHT
    return pairs


def _spread_counts(constraint: SpreadConstraint, request: Request, pod: Request) -> bool:
    selector = constraint.label_selector
    return (
        selector is not None
        and pod.namespace == request.namespace
        and not pod.terminating
        and selector.matches(pod.labels)
    )
