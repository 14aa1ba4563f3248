"""Can a pending pod keep slices that it holds from an earlier attempt?

A crash or a failed write between claim and binding leaves claims behind. Valid ones are used: the decision then only
adds what is missing. Claims that cannot be used any more (their node changed, or another claim overlaps them) are
released, and the pod waits until they are gone, because its new claims will have the same names.
"""

from __future__ import annotations

from typing import NamedTuple

from apportion.apis.custom_resources.claims import claim_name
from apportion.apis.identities import NO_NODE, ClaimName, NodeName
from apportion.apis.request import Request, SliceRequest
from apportion.core.filters import Checks, gpus, resources
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import HeldSlice
from apportion.core.ledger import GpuLedger
from apportion.core.node import NodeState
from apportion.core.reasons import Code, Reason


def leaving(held: tuple[HeldSlice, ...]) -> bool:
    """Some of them are being freed: the pod cannot be decided before they are gone."""
    return any(each.releasing for each in held)


class Obstacle(NamedTuple):
    """A reason, and the node that it is about if it is about one."""

    reason: Reason
    node: NodeName = NO_NODE

    @property
    def said(self) -> str:
        return f"node {self.node} {self.reason.said}" if self.node else self.reason.said


def obstacle(fleet: Fleet, request: Request, held: tuple[HeldSlice, ...]) -> Obstacle | None:
    """Why the pod cannot keep these slices; None if it can."""
    wanted = {claim_name(request.uid, want.container, want.index): want.profile for want in request.slices}
    if any(wanted.get(ClaimName(each.key)) != each.placement.profile for each in held):
        return Obstacle(Reason(Code.NOT_REQUESTED))
    homes = {fleet.gpu_nodes.get(each.gpu, NO_NODE) for each in held} | {each.node for each in held if each.node}
    if len(homes) != 1:
        return Obstacle(Reason(Code.NOT_TOGETHER))
    node = fleet.nodes.get(homes.pop())
    if node is None or node.facts is None:
        return Obstacle(Reason(Code.NODE_GONE))
    return _against(fleet, node, request, held)


def missing(request: Request, held: tuple[HeldSlice, ...]) -> list[SliceRequest]:
    """What the pod asks for and does not hold."""
    keys = {each.key for each in held}
    return [want for want in request.slices if claim_name(request.uid, want.container, want.index) not in keys]


def _against(fleet: Fleet, node: NodeState, request: Request, held: tuple[HeldSlice, ...]) -> Obstacle | None:
    """The rules for any pod and any node; only the placements of these slices are given instead of searched."""
    reason = (
        gpus.against_slicing(node)
        or Checks(fleet, request).against_node(node)
        or resources.against_gpu_resources(node, request)
    )
    if reason is not None:
        return Obstacle(reason, node.name)
    reasons = (_against_gpu(node.gpus[each.gpu], each) for each in held)
    return next((Obstacle(reason) for reason in reasons if reason is not None), None)


def _against_gpu(gpu: GpuLedger, held: HeldSlice) -> Reason | None:
    if not gpu.facts.healthy:
        return Reason(Code.GPU_UNHEALTHY, gpu.uuid)
    if not gpu.facts.mig:
        return Reason(Code.GPU_NOT_IN_MIG_MODE, gpu.uuid)
    if not gpu.takes_slices:
        return Reason(Code.GPU_IN_OTHER_USE, gpu.uuid)
    if any(key != held.key and other.placement.overlaps(held.placement) for key, other in gpu.slices.items()):
        return Reason(Code.OVERLAPPED)
    if not gpu.legal_beside_others(held):
        return Reason(Code.ILLEGAL_PLACEMENT, f"{held.placement.profile} at {held.placement.start}")
    return None
