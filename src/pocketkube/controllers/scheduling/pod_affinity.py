"""Affinity and anti-affinity between pods.

As in kube-scheduler existing pods are counted once per pod to place, by topology pair (label key and
value). Then each node only looks up its own pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from apportion.apis.pods import PodAffinityTerm
from pocketkube.controllers.scheduling.cluster_state import ClusterState, NodeFacts, PodFacts
from pocketkube.controllers.scheduling.refusals import Refusal

Pair = tuple[str, str]

_NOT_NEAR = Refusal("node(s) didn't match pod affinity rules")
_APART = Refusal("node(s) didn't match pod anti-affinity rules", preemption_helps=True)
_KEPT_APART = Refusal("node(s) didn't satisfy existing pods anti-affinity rules", preemption_helps=True)


class Neighbours(NamedTuple):
    """Existing pods, counted by topology pair: those to be near to, those to avoid, those that avoid this pod."""

    near: Counter[Pair]
    apart: Counter[Pair]
    kept_apart: Counter[Pair]
    first: bool  # no pod matches yet, and the pod matches its own terms


def prepare(cluster: ClusterState, pod: PodFacts) -> Neighbours | None:
    """None if neither the pod nor any existing pod has such a rule."""
    rules = pod.rules
    if not (rules.affinity or rules.anti_affinity or cluster.apart):
        return None
    near: Counter[Pair] = Counter()
    apart: Counter[Pair] = Counter()
    if rules.affinity or rules.anti_affinity:
        for node in cluster:
            for other in node.pods.values():
                if rules.affinity and all(_matches(cluster, term, pod, other) for term in rules.affinity):
                    near.update(_pairs(node.facts, rules.affinity))
                meant = (term for term in rules.anti_affinity if _matches(cluster, term, pod, other))
                apart.update(_pairs(node.facts, meant))
    own = bool(rules.affinity) and all(_matches(cluster, term, pod, pod) for term in rules.affinity)
    return Neighbours(near, apart, _kept_apart(cluster, pod), own and not near)


def against(facts: NodeFacts, pod: PodFacts, known: Neighbours) -> Refusal | None:
    if not _near_enough(facts, pod, known):
        return _NOT_NEAR
    if any(known.apart[pair] for pair in _pairs(facts, pod.rules.anti_affinity)):
        return _APART
    if known.kept_apart and any(known.kept_apart[pair] for pair in facts.labels.items()):
        return _KEPT_APART
    return None


def _near_enough(facts: NodeFacts, pod: PodFacts, known: Neighbours) -> bool:
    terms = pod.rules.affinity
    if not all(term.topology_key in facts.labels for term in terms):
        return False
    return known.first or all(known.near[pair] for pair in _pairs(facts, terms))


def _kept_apart(cluster: ClusterState, pod: PodFacts) -> Counter[Pair]:
    pairs: Counter[Pair] = Counter()
    for uid in cluster.apart:
        node, other = cluster.nodes.get(cluster.pod_nodes[uid]), cluster.pod(uid)
        if node is not None and other is not None:
            meant = (term for term in other.rules.anti_affinity if _matches(cluster, term, other, pod))
            pairs.update(_pairs(node.facts, meant))
    return pairs


def _pairs(facts: NodeFacts, terms: Iterable[PodAffinityTerm]) -> Iterator[Pair]:
    for term in terms:
        if term.topology_key in facts.labels:
            yield term.topology_key, facts.labels[term.topology_key]


def _matches(cluster: ClusterState, term: PodAffinityTerm, owner: PodFacts, other: PodFacts) -> bool:
    """Whether a term of the owner is about the other pod."""
    return term.selects(other.namespace, other.labels, owner=owner.namespace, namespaces=cluster.namespaces)
