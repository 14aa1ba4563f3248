"""Slices for a bound pod whose claims are gone: those that exist, others on its node, or the pod has to go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from apportion.apis.custom_resources.claims import claim_name
from apportion.apis.identities import ClaimName, PodUID
from apportion.apis.placements import SlicePlacement
from apportion.apis.request import Request, SliceRequest
from apportion.core import existing_claims
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.operations import ClaimSlice, Evict, Operation
from apportion.core.placement.node_placement import placement
from apportion.core.policies import Policy
from apportion.core.statement import Statement


def missing(fleet: Fleet, uid: PodUID) -> list[SliceRequest]:
    """What a bound pod asks for and has no claim for."""
    node = fleet.pod_nodes.get(uid)
    if node is None or uid in fleet.releasing:
        return []
    return existing_claims.missing(fleet.nodes[node].pods[uid], fleet.slices_of(uid))


def replace(fleet: Fleet, uid: PodUID, policy: Policy) -> Statement | None:
    """None if that cannot be decided now: the node's agent is not ready, or slices of the pod are being freed."""
    node = fleet.nodes[fleet.pod_nodes[uid]]
    request = node.pods[uid]
    if node.facts is None or not node.ready or existing_claims.leaving(fleet.slices_of(uid)):
        return None
    policy = policy.for_request(request)
    policy.prepare(fleet)
    wants = missing(fleet, uid)
    found = placement(node, request, policy, wants)
    operations: list[Operation]
    if found is None:
        lost = ", ".join(want.profile for want in wants)
        reason = f"its claims for {lost} were removed before it started, and node {node.name} has no other placement"
        operations = [Evict(request, node.name, reason)]
    else:
        operations = [
            ClaimSlice(claim_name(uid, want.container, want.index), request, node.name, place, want.containers)
            for want, place in found.slices
        ]
    return _applied(fleet, request, operations)


def restore(fleet: Fleet, uid: PodUID, existing: Mapping[ClaimName, SlicePlacement]) -> Statement | None:
    """Claims for slices that exist on the node, by the names of the claims that are gone; None if there are none.

    A slice that exists keeps its placement, also if another pod was promised it meanwhile: that one moves.
    """
    node = fleet.nodes[fleet.pod_nodes[uid]]
    request = node.pods[uid]
    found = [(want, existing.get(claim_name(uid, want.container, want.index))) for want in missing(fleet, uid)]
    operations = [
        ClaimSlice(claim_name(uid, want.container, want.index), request, node.name, place, want.containers)
        for want, place in found
        if place is not None and place.profile == want.profile and fleet.gpu_nodes.get(place.gpu) == node.name
    ]
    return _applied(fleet, request, operations) if operations else None


def _applied(fleet: Fleet, request: Request, operations: Sequence[Operation]) -> Statement:
    for operation in operations:
        operation.apply(fleet)
    return Statement(Group.of(request), tuple(operations))
