"""Can a pending pod keep slices that it holds from an earlier attempt?

A crash or a failed write between claim and binding leaves claims behind. Valid ones are used: the decision then only
adds what is missing. Claims that cannot be used any more (their node changed, or another claim overlaps them) are
released, and the pod waits until they are gone, because its new claims will have the same names.
"""

from __future__ import annotations

from apportion.apis.custom_resources.claims import claim_name
from apportion.apis.identities import NO_NODE, ClaimName
from apportion.apis.request import Request, SliceRequest
from apportion.core.filters import Checks, gpus, resources
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import HeldSlice
from apportion.core.ledger import GpuLedger
from apportion.core.node import NodeState


def leaving(held: tuple[HeldSlice, ...]) -> bool:
    """Some of them are being freed: the pod cannot be decided before they are gone."""
    return any(each.releasing for each in held)


def obstacle(fleet: Fleet, request: Request, held: tuple[HeldSlice, ...]) -> str | None:
    """Why the pod cannot keep these slices; None if it can."""
    wanted = {claim_name(request.uid, want.container, want.index): want.profile for want in request.slices}
    if any(wanted.get(ClaimName(each.key)) != each.placement.profile for each in held):
        return "the pod no longer requests them"
    homes = {fleet.gpu_nodes.get(each.gpu, NO_NODE) for each in held} | {each.node for each in held if each.node}
    if len(homes) != 1:
        return "they are on different nodes, or on a GPU that no longer exists"
    node = fleet.nodes.get(homes.pop())
    if node is None or node.facts is None:
        return "their node no longer exists"
    return _against(fleet, node, request, held)


def missing(request: Request, held: tuple[HeldSlice, ...]) -> list[SliceRequest]:
    """What the pod asks for and does not hold."""
    keys = {each.key for each in held}
    return [want for want in request.slices if claim_name(request.uid, want.container, want.index) not in keys]


def _against(fleet: Fleet, node: NodeState, request: Request, held: tuple[HeldSlice, ...]) -> str | None:
    """The rules for any pod and any node; only the places of these slices are given instead of searched."""
    if not node.ready:
        return f"the agent of node {node.name} is not ready"
    reason = (
        Checks(fleet, request).against_node(node)
        or gpus.against_slicing(node)
        or resources.against_gpu_resources(node, request)
    )
    if reason is not None:
        return f"node {node.name} is no longer suitable ({reason.code})"
    problems = (_against_gpu(node.gpus[each.gpu], each) for each in held)
    return next((problem for problem in problems if problem is not None), None)


def _against_gpu(gpu: GpuLedger, held: HeldSlice) -> str | None:
    if not gpu.facts.healthy:
        return f"GPU {gpu.uuid} is not healthy"
    if not gpu.facts.mig:
        return f"GPU {gpu.uuid} is not in MIG mode"
    if not gpu.takes_slices:
        return f"GPU {gpu.uuid} is allocated whole or shared"
    if any(key != held.key and other.placement.overlaps(held.placement) for key, other in gpu.slices.items()):
        return "another claim overlaps them"
    if not gpu.legal_beside_others(held):
        return f"{held.placement.profile} at {held.placement.start} is not a legal placement on GPU {gpu.uuid}"
    return None
