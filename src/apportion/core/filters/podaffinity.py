"""Rules about which pods may share a topology domain: near these, apart from those.

As in kube-scheduler existing pods are counted once per request, by topology pair (label key and
value). Then each node only looks up its own pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from apportion.apis.pods import PodAffinityTerm
from apportion.apis.request import Request
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import NodeFacts
from apportion.core.node import NodeState
from apportion.core.reasons import Code, Reason

Pair = tuple[str, str]


class Neighbours(NamedTuple):
    """What the existing pods mean for one request; pairs without pods are left out."""

    near: Counter[Pair]
    apart: Counter[Pair]
    kept_apart: Counter[Pair]
    matches_itself: bool

    @property
    def counts_any(self) -> bool:
        return bool(self.near or self.apart or self.kept_apart)

    def add(self, other: Neighbours) -> None:
        for mine, theirs in zip(self[:3], other[:3], strict=True):
            mine.update(theirs)

    def subtract(self, other: Neighbours) -> None:
        for mine, theirs in zip(self[:3], other[:3], strict=True):
            for pair, count in theirs.items():
                mine[pair] -= count
                if not mine[pair]:
                    del mine[pair]


def prepare(fleet: Fleet, request: Request) -> Neighbours | None:
    """None if neither the request nor any existing pod has such a rule."""
    rules = request.rules
    if not (rules.affinity or rules.anti_affinity or fleet.apart):
        return None
    found = nobody(fleet, request)
    if rules.affinity or rules.anti_affinity:
        for node in fleet:
            _count_pods(fleet, node, request, found)
    for uid, name in fleet.apart.items():
        node = fleet.nodes[name]
        if node.facts is not None:
            _keep_apart(fleet, node.pods[uid], node.facts.labels, request, found)
    return found


def nobody(fleet: Fleet, request: Request) -> Neighbours:
    """No pod exists yet."""
    terms = request.rules.affinity
    own = bool(terms) and all(matches(fleet, term, request, request) for term in terms)
    return Neighbours(Counter(), Counter(), Counter(), own)


def on_node(fleet: Fleet, node: NodeState, request: Request) -> Neighbours:
    """The pods of one node alone."""
    rules = request.rules
    found = Neighbours(Counter(), Counter(), Counter(), matches_itself=False)
    if node.facts is None:
        return found
    if rules.affinity or rules.anti_affinity:
        _count_pods(fleet, node, request, found)
    for pod in node.pods.values() if fleet.apart else ():
        if pod.rules.anti_affinity:
            _keep_apart(fleet, pod, node.facts.labels, request, found)
    return found


def against(facts: NodeFacts, request: Request, known: Neighbours) -> Reason | None:
    labels = facts.labels
    if not _near_enough(labels, request.rules.affinity, known):
        return Reason(Code.NEAR)
    for term in request.rules.anti_affinity:
        if term.topology_key in labels and known.apart[term.topology_key, labels[term.topology_key]]:
            return Reason(Code.APART, term.topology_key)
    if known.kept_apart and any(known.kept_apart[pair] for pair in labels.items()):
        return Reason(Code.KEPT_APART)
    return None


def _near_enough(labels: Mapping[str, str], terms: Sequence[PodAffinityTerm], known: Neighbours) -> bool:
    if not all(term.topology_key in labels for term in terms):
        return False
    if all(known.near[term.topology_key, labels[term.topology_key]] for term in terms):
        return True
    return known.matches_itself and not known.near  # no pod matches yet, and the pod matches its own terms


def _count_pods(fleet: Fleet, node: NodeState, request: Request, found: Neighbours) -> None:
    """The pods that the request's own terms select."""
    rules = request.rules
    assert node.facts is not None
    labels = node.facts.labels
    near = [(term.topology_key, labels[term.topology_key]) for term in rules.affinity if term.topology_key in labels]
    apart = [term for term in rules.anti_affinity if term.topology_key in labels]
    for pod in node.pods.values():
        if near and all(matches(fleet, term, request, pod) for term in rules.affinity):
            found.near.update(near)
        for term in apart:
            if matches(fleet, term, request, pod):
                found.apart[term.topology_key, labels[term.topology_key]] += 1


def _keep_apart(fleet: Fleet, pod: Request, labels: Mapping[str, str], request: Request, found: Neighbours) -> None:
    """Whether the anti-affinity of an existing pod selects the request."""
    for term in pod.rules.anti_affinity:
        if term.topology_key in labels and matches(fleet, term, pod, request):
            found.kept_apart[term.topology_key, labels[term.topology_key]] += 1


def matches(fleet: Fleet, term: PodAffinityTerm, owner: Request, other: Request) -> bool:
    """Does the owner's term select the other pod?"""
    return term.selects(other.namespace, other.labels, owner=owner.namespace, namespaces=fleet.namespaces)
