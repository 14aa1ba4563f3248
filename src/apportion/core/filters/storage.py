"""Volumes: bound ones pin a pod to nodes, unbound ones need a volume or a provisioner for the node."""

from __future__ import annotations

from collections.abc import Hashable

from apportion.apis.request import Request
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import NodeFacts
from apportion.core.node import NodeState
from apportion.core.reasons import Code, Reason
from apportion.core.volumes import NO_PROVISIONER, Storage, VolumeClaimFacts, VolumeFacts

ONCE_PER_POD = "ReadWriteOncePod"
ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


def anywhere(fleet: Fleet, request: Request) -> Reason | None:
    """What about the pod's volume claims rules out every node."""
    storage = fleet.storage
    if storage is None:
        return None
    for name in request.volume_claims:
        key = f"{request.namespace}/{name}"
        volume_claim = storage.volume_claims.get(key)
        # What was chosen for another pod and is not visible yet may still fail, so no other pod relies on it.
        if volume_claim is None or volume_claim.deleting or key in storage.chosen:
            return Reason(Code.VOLUME_CLAIM, _said(request, name))
        if volume_claim.volume:
            if volume_claim.volume not in storage.volumes:
                return Reason(Code.VOLUME_CLAIM, _said(request, name))
        elif not _waits(storage, volume_claim):
            return Reason(Code.VOLUME_CLAIM, _said(request, name))
        if ONCE_PER_POD in volume_claim.access_modes and _in_use(fleet, request, key):
            return Reason(Code.VOLUME_BUSY, _said(request, name))
    return None


def against(fleet: Fleet, node: NodeState, request: Request) -> Reason | None:
    storage = fleet.storage
    if storage is None or node.facts is None:
        return None
    taken = _chosen(storage)
    # Small volume claims first, as the volume binder matches them, so that a large volume is kept for a large one.
    claims = [(name, storage.volume_claims[f"{request.namespace}/{name}"]) for name in request.volume_claims]
    for name, volume_claim in sorted(claims, key=lambda entry: entry[1].size):
        if volume_claim.volume:
            if not _reachable(storage.volumes[volume_claim.volume], node.facts):
                return Reason(Code.VOLUME_NODE, _said(request, name))
            continue
        if volume_claim.selected_node and volume_claim.selected_node != node.facts.name:
            return Reason(Code.VOLUME_NODE, _said(request, name))
        match = _matching(storage, f"{request.namespace}/{name}", volume_claim, node.facts, taken)
        if match is not None:
            taken.add(match)
        elif not _provisioned(storage, volume_claim, node.facts):
            return Reason(Code.VOLUME_NODE, _said(request, name))
    return None


def volumes_for(storage: Storage, request: Request, facts: NodeFacts) -> dict[str, str | None]:
    """Which ready-made volume each unbound volume claim of the pod gets on this node; None where one is provisioned."""
    chosen: dict[str, str | None] = {}
    claims = [(name, storage.volume_claims.get(f"{request.namespace}/{name}")) for name in request.volume_claims]
    unbound = [
        (name, volume_claim) for name, volume_claim in claims if volume_claim is not None and not volume_claim.volume
    ]
    for name, volume_claim in sorted(unbound, key=lambda entry: entry[1].size):
        taken = _chosen(storage) | {volume for volume in chosen.values() if volume}
        chosen[name] = _matching(storage, f"{request.namespace}/{name}", volume_claim, facts, taken)
    return chosen


def own_claims(fleet: Fleet, request: Request) -> Hashable:
    """What counts of the claims of the pod's ephemeral volumes: equal for pods whose claims ask for the same and have
    nothing yet. A volume claim that has a volume, or for which one is meant, is like no other."""
    storage = fleet.storage
    if storage is None:
        return ()
    names = (f"{request.name}-{volume}" for volume in request.rules.ephemeral)
    return tuple(_own_claim(fleet, storage, f"{request.namespace}/{name}") for name in names)


def _own_claim(fleet: Fleet, storage: Storage, key: str) -> Hashable:
    volume_claim = storage.volume_claims.get(key)
    if volume_claim is None:
        return None
    has_something = volume_claim.volume or volume_claim.selected_node or volume_claim.deleting or key in storage.chosen
    if has_something or key in fleet.volume_users or any(volume.claim == key for volume in storage.volumes.values()):
        return key
    return (
        volume_claim.storage_class,
        volume_claim.access_modes,
        volume_claim.volume_mode,
        volume_claim.size,
        repr(volume_claim.selector),
    )


def _chosen(storage: Storage) -> set[str]:
    return {choice.volume for choice in storage.chosen.values() if choice.volume}


def _waits(storage: Storage, volume_claim: VolumeClaimFacts) -> bool:
    kind = storage.classes.get(volume_claim.storage_class)
    return kind is not None and kind.waits_for_pod


def _in_use(fleet: Fleet, request: Request, key: str) -> bool:
    """Another pod that is on a node uses the claim."""
    return any(
        uid != request.uid and fleet.nodes[fleet.pod_nodes[uid]].facts is not None
        for uid in fleet.volume_users.get(key, ())
    )


def _said(request: Request, name: str) -> str:
    """The claim as reasons name it: one text for all pods that differ only in their names."""
    if name in request.rules.volume_claims:
        return name
    return f"of ephemeral volume {name.removeprefix(request.name + '-')}"


def _reachable(volume: VolumeFacts, facts: NodeFacts) -> bool:
    if volume.node_affinity is not None and not volume.node_affinity.matches(facts.name, facts.labels):
        return False
    zones = {key: volume.labels[key].split("__") for key in ZONE_LABELS if key in volume.labels}
    if not zones or not any(key in facts.labels for key in ZONE_LABELS):
        return True  # a cluster of one zone does not label its nodes
    return all(facts.labels.get(key) in allowed for key, allowed in zones.items())


def _matching(
    storage: Storage, key: str, volume_claim: VolumeClaimFacts, facts: NodeFacts, taken: set[str]
) -> str | None:
    """The smallest volume that would serve this volume claim on this node; one reserved for it comes first."""
    best: tuple[bool, int, str] | None = None
    for name, volume in storage.volumes.items():
        reserved = volume.claim == key
        if name in taken or (volume.claim and not reserved) or not _suits(volume, volume_claim, reserved=reserved):
            continue
        if volume.node_affinity is not None and not volume.node_affinity.matches(facts.name, facts.labels):
            continue
        option = (not reserved, volume.size, name)
        best = option if best is None else min(best, option)
    return best[2] if best else None


def _suits(volume: VolumeFacts, volume_claim: VolumeClaimFacts, *, reserved: bool) -> bool:
    if volume.volume_mode != volume_claim.volume_mode or volume.size < volume_claim.size:
        return False
    if reserved:
        return True
    if volume.phase != "Available" or volume.storage_class != volume_claim.storage_class:
        return False
    if volume_claim.selector is not None and not volume_claim.selector.matches(volume.labels):
        return False
    return set(volume_claim.access_modes) <= set(volume.access_modes)


def _provisioned(storage: Storage, volume_claim: VolumeClaimFacts, facts: NodeFacts) -> bool:
    kind = storage.classes.get(volume_claim.storage_class)
    if kind is None or kind.provisioner in {"", NO_PROVISIONER}:
        return False
    return not kind.allowed_topologies or any(
        term.matches(facts.name, facts.labels) for term in kind.allowed_topologies
    )
