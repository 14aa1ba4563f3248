"""Volumes: bound ones pin a pod to nodes, unbound ones need a volume or a provisioner for the node."""

from __future__ import annotations

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
    for name in request.rules.volume_claims:
        key = f"{request.namespace}/{name}"
        volume_claim = storage.volume_claims.get(key)
        # What was chosen for another pod and is not visible yet may still fail, so no other pod relies on it.
        if volume_claim is None or volume_claim.deleting or key in storage.chosen:
            return Reason(Code.VOLUME_CLAIM, name)
        if volume_claim.volume:
            if volume_claim.volume not in storage.volumes:
                return Reason(Code.VOLUME_CLAIM, name)
        elif not _waits(storage, volume_claim):
            return Reason(Code.VOLUME_CLAIM, name)
        if ONCE_PER_POD in volume_claim.access_modes and _in_use(fleet, request, name):
            return Reason(Code.VOLUME_BUSY, name)
    return None


def against(fleet: Fleet, node: NodeState, request: Request) -> Reason | None:
    storage = fleet.storage
    if storage is None or node.facts is None:
        return None
    taken = _chosen(storage)
    # Small volume claims first, as the volume binder matches them, so that a large volume is kept for a large one.
    claims = [(name, storage.volume_claims[f"{request.namespace}/{name}"]) for name in request.rules.volume_claims]
    for name, volume_claim in sorted(claims, key=lambda entry: entry[1].size):
        if volume_claim.volume:
            if not _reachable(storage.volumes[volume_claim.volume], node.facts):
                return Reason(Code.VOLUME_NODE, name)
            continue
        if volume_claim.selected_node and volume_claim.selected_node != node.facts.name:
            return Reason(Code.VOLUME_NODE, name)
        match = _matching(storage, f"{request.namespace}/{name}", volume_claim, node.facts, taken)
        if match is not None:
            taken.add(match)
        elif not _provisioned(storage, volume_claim, node.facts):
            return Reason(Code.VOLUME_NODE, name)
    return None


def volumes_for(storage: Storage, request: Request, facts: NodeFacts) -> dict[str, str | None]:
    """Which ready-made volume each unbound volume claim of the pod gets on this node; None where one is provisioned."""
    chosen: dict[str, str | None] = {}
    claims = [(name, storage.volume_claims.get(f"{request.namespace}/{name}")) for name in request.rules.volume_claims]
    unbound = [
        (name, volume_claim) for name, volume_claim in claims if volume_claim is not None and not volume_claim.volume
    ]
    for name, volume_claim in sorted(unbound, key=lambda entry: entry[1].size):
        taken = _chosen(storage) | {volume for volume in chosen.values() if volume}
        chosen[name] = _matching(storage, f"{request.namespace}/{name}", volume_claim, facts, taken)
    return chosen


def _chosen(storage: Storage) -> set[str]:
    return {choice.volume for choice in storage.chosen.values() if choice.volume}


def _waits(storage: Storage, volume_claim: VolumeClaimFacts) -> bool:
    kind = storage.classes.get(volume_claim.storage_class)
    return kind is not None and kind.waits_for_pod


def _in_use(fleet: Fleet, request: Request, name: str) -> bool:
    return any(
        pod.uid != request.uid and pod.namespace == request.namespace and name in pod.rules.volume_claims
        for node in fleet
        for pod in node.pods.values()
    )


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
