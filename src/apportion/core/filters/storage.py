"""Volumes: bound ones pin a pod to nodes, unbound ones need a volume or a provisioner for the node."""

from __future__ import annotations

from collections.abc import Hashable

from apportion.apis.request import Request
from apportion.core.facts import NodeFacts
from apportion.core.fleet import Fleet
from apportion.core.node import NodeState
from apportion.core.reasons import Code, Reason
from apportion.core.volumes import NO_PROVISIONER, ClaimFacts, Storage, VolumeFacts

ONCE_PER_POD = "ReadWriteOncePod"
ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


def anywhere(fleet: Fleet, request: Request) -> Reason | None:
    """What about the pod's claims rules out every node."""
    storage = fleet.storage
    if storage is None:
        return None
    for name in request.volume_claims:
        key = f"{request.namespace}/{name}"
        claim = storage.claims.get(key)
        # What was chosen for another pod and is not visible yet may still fail, so no other pod relies on it.
        if claim is None or claim.deleting or key in storage.chosen:
            return Reason(Code.VOLUME_CLAIM, _said(request, name))
        if claim.volume:
            if claim.volume not in storage.volumes:
                return Reason(Code.VOLUME_CLAIM, _said(request, name))
        elif not _waits(storage, claim):
            return Reason(Code.VOLUME_CLAIM, _said(request, name))
        if ONCE_PER_POD in claim.access_modes and _in_use(fleet, request, key):
            return Reason(Code.VOLUME_BUSY, _said(request, name))
    return None


def against(fleet: Fleet, node: NodeState, request: Request) -> Reason | None:
    storage = fleet.storage
    if storage is None or node.facts is None:
        return None
    taken = _chosen(storage)
    # Small claims first, as the volume binder matches them, so that a large volume is kept for a large claim.
    claims = [(name, storage.claims[f"{request.namespace}/{name}"]) for name in request.volume_claims]
    for name, claim in sorted(claims, key=lambda entry: entry[1].size):
        if claim.volume:
            if not _reachable(storage.volumes[claim.volume], node.facts):
                return Reason(Code.VOLUME_NODE, _said(request, name))
            continue
        if claim.selected_node and claim.selected_node != node.facts.name:
            return Reason(Code.VOLUME_NODE, _said(request, name))
        match = _matching(storage, f"{request.namespace}/{name}", claim, node.facts, taken)
        if match is not None:
            taken.add(match)
        elif not _provisioned(storage, claim, node.facts):
            return Reason(Code.VOLUME_NODE, _said(request, name))
    return None


def volumes_for(storage: Storage, request: Request, facts: NodeFacts) -> dict[str, str | None]:
    """Which ready-made volume each unbound claim of the pod gets on this node; None where one is provisioned."""
    chosen: dict[str, str | None] = {}
    claims = [(name, storage.claims.get(f"{request.namespace}/{name}")) for name in request.volume_claims]
    unbound = [(name, claim) for name, claim in claims if claim is not None and not claim.volume]
    for name, claim in sorted(unbound, key=lambda entry: entry[1].size):
        taken = _chosen(storage) | {volume for volume in chosen.values() if volume}
        chosen[name] = _matching(storage, f"{request.namespace}/{name}", claim, facts, taken)
    return chosen


def own_claims(fleet: Fleet, request: Request) -> Hashable:
    """What counts of the claims of the pod's ephemeral volumes: equal for pods whose claims ask for the same and have
    nothing yet. A claim that has a volume, or for which one is meant, is like no other."""
    storage = fleet.storage
    if storage is None:
        return ()
    names = (f"{request.name}-{volume}" for volume in request.rules.ephemeral)
    return tuple(_own_claim(fleet, storage, f"{request.namespace}/{name}") for name in names)


def _own_claim(fleet: Fleet, storage: Storage, key: str) -> Hashable:
    claim = storage.claims.get(key)
    if claim is None:
        return None
    has_something = claim.volume or claim.selected_node or claim.deleting or key in storage.chosen
    if has_something or key in fleet.volume_users or any(volume.claim == key for volume in storage.volumes.values()):
        return key
    return claim.storage_class, claim.access_modes, claim.volume_mode, claim.size, repr(claim.selector)


def _chosen(storage: Storage) -> set[str]:
    return {choice.volume for choice in storage.chosen.values() if choice.volume}


def _waits(storage: Storage, claim: ClaimFacts) -> bool:
    kind = storage.classes.get(claim.storage_class)
    return kind is not None and kind.waits_for_pod


def _in_use(fleet: Fleet, request: Request, key: str) -> bool:
    """Another pod that is on a node uses the claim."""
    return any(
        uid != request.uid and fleet.nodes[fleet.pod_nodes[uid]].facts is not None
        for uid in fleet.volume_users.get(key, ())
    )


def _said(request: Request, name: str) -> str:
    """The claim as reasons name it: one text for all pods that differ only in their names."""
    if name in request.rules.claims:
        return name
    return f"of ephemeral volume {name.removeprefix(request.name + '-')}"


def _reachable(volume: VolumeFacts, facts: NodeFacts) -> bool:
    if volume.node_affinity is not None and not volume.node_affinity.matches(facts.name, facts.labels):
        return False
    zones = {key: volume.labels[key].split("__") for key in ZONE_LABELS if key in volume.labels}
    if not zones or not any(key in facts.labels for key in ZONE_LABELS):
        return True  # a cluster of one zone does not label its nodes
    return all(facts.labels.get(key) in allowed for key, allowed in zones.items())


def _matching(storage: Storage, key: str, claim: ClaimFacts, facts: NodeFacts, taken: set[str]) -> str | None:
    """The smallest volume that would serve this claim on this node; one reserved for it comes first."""
    best: tuple[bool, int, str] | None = None
    for name, volume in storage.volumes.items():
        reserved = volume.claim == key
        if name in taken or (volume.claim and not reserved) or not _suits(volume, claim, reserved=reserved):
            continue
        if volume.node_affinity is not None and not volume.node_affinity.matches(facts.name, facts.labels):
            continue
        option = (not reserved, volume.size, name)
        best = option if best is None else min(best, option)
    return best[2] if best else None


def _suits(volume: VolumeFacts, claim: ClaimFacts, *, reserved: bool) -> bool:
    if volume.volume_mode != claim.volume_mode or volume.size < claim.size:
        return False
    if reserved:
        return True
    if volume.phase != "Available" or volume.storage_class != claim.storage_class:
        return False
    if claim.selector is not None and not claim.selector.matches(volume.labels):
        return False
    return set(claim.access_modes) <= set(volume.access_modes)


def _provisioned(storage: Storage, claim: ClaimFacts, facts: NodeFacts) -> bool:
    kind = storage.classes.get(claim.storage_class)
    if kind is None or kind.provisioner in {"", NO_PROVISIONER}:
        return False
    return not kind.allowed_topologies or any(
        term.matches(facts.name, facts.labels) for term in kind.allowed_topologies
    )
