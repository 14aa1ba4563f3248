"""Can a pending pod keep slices that it holds from an earlier attempt?

A crash or a failed write between claim and binding leaves claims behind. Valid ones are used: the decision then only
adds what is missing. Claims that cannot be used any more (their node changed, or another claim overlaps them) are
released, and the pod waits until they are gone, because its new claims will have the same names.
"""

from __future__ import annotations

from apportion.apis.custom_resources.claims import claim_name
from apportion.apis.identities import NO_NODE, ClaimName
from apportion.apis.request import Request, SliceRequest
from apportion.core.filters import nodes, resources, storage
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import HeldSlice
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


def _overlapped(fleet: Fleet, held: HeldSlice) -> bool:
    gpu = fleet.nodes[fleet.gpu_nodes[held.gpu]].gpus[held.gpu]
    return any(key != held.key and other.placement.overlaps(held.placement) for key, other in gpu.slices.items())


def _against(fleet: Fleet, node: NodeState, request: Request, held: tuple[HeldSlice, ...]) -> str | None:
    if not node.ready:
        return f"the agent of node {node.name} is not ready"
    reason = (
        nodes.against(node, request)
        or resources.against(node, request)
        or resources.against_gpu_resources(node, request)
        or storage.anywhere(fleet, request)
        or storage.against(fleet, node, request)
    )
    if reason is not None:
        return f"node {node.name} is no longer suitable ({reason.code})"
    if any(_overlapped(fleet, each) for each in held):
        return "another claim overlaps them"
    return None
