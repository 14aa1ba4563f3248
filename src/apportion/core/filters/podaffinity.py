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
from apportion.core.reasons import Code, Reason

Pair = tuple[str, str]


class Neighbours(NamedTuple):
    """What the existing pods mean for one request."""

    near: Counter[Pair]
    apart: Counter[Pair]
    kept_apart: Counter[Pair]
    first_of_its_kind: bool


def prepare(fleet: Fleet, request: Request) -> Neighbours | None:
    """None if neither the request nor any existing pod has such a rule."""
    rules = request.rules
    if not (rules.affinity or rules.anti_affinity or fleet.apart):
        return None
    near: Counter[Pair] = Counter()
    apart: Counter[Pair] = Counter()
    if rules.affinity or rules.anti_affinity:
        for node in fleet:
            assert node.facts is not None
            for pod in node.pods.values():
                _count(fleet, request, pod, node.facts.labels, near, apart)
    own = bool(rules.affinity) and all(matches(fleet, term, request, request) for term in rules.affinity)
    return Neighbours(near, apart, _kept_apart(fleet, request), own and not near)


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
    return known.first_of_its_kind  # no pod matches yet, and the pod matches its own terms


def _count(
    fleet: Fleet,
    request: Request,
    pod: Request,
    labels: Mapping[str, str],
    near: Counter[Pair],
    apart: Counter[Pair],
) -> None:
    rules = request.rules
    if rules.affinity and all(matches(fleet, term, request, pod) for term in rules.affinity):
        near.update(
            (term.topology_key, labels[term.topology_key]) for term in rules.affinity if term.topology_key in labels
        )
    for term in rules.anti_affinity:
        if term.topology_key in labels and matches(fleet, term, request, pod):
            apart[term.topology_key, labels[term.topology_key]] += 1


def _kept_apart(fleet: Fleet, request: Request) -> Counter[Pair]:
    pairs: Counter[Pair] = Counter()
    for uid, node in fleet.apart.items():
        state = fleet.nodes[node]
        if state.facts is None:
            continue
        pod, labels = state.pods[uid], state.facts.labels
        for term in pod.rules.anti_affinity:
            if term.topology_key in labels and matches(fleet, term, pod, request):
                pairs[term.topology_key, labels[term.topology_key]] += 1
    return pairs


def matches(fleet: Fleet, term: PodAffinityTerm, owner: Request, other: Request) -> bool:
    """Does the owner's term select the other pod?"""
    return term.selects(other.namespace, other.labels, owner=owner.namespace, namespaces=fleet.namespaces)
