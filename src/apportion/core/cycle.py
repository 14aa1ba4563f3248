"""Decide about a group of pods: a plan for all of them, or why not.

The unit of decision is a group (of one, until gangs come). All members get a place or none does. The fleet
assumes the plan as soon as it is made, so that the next decision sees it.
"""

from __future__ import annotations

from collections.abc import Sequence

from apportion.apis.claims import claim_name
from apportion.apis.request import Request
from apportion.core import explain
from apportion.core.choosing import best_seat
from apportion.core.facts import SlicePlacement
from apportion.core.fleet import Fleet
from apportion.core.placing import Seat
from apportion.core.plans import Bind, BindShare, ClaimSlice, Evict, Nominate, Operation, Plan, share_key
from apportion.core.policies import Policy
from apportion.core.refusals import Refusal, unexplained

__all__ = ["Bind", "BindShare", "ClaimSlice", "Evict", "Nominate", "Operation", "Plan", "Refusal", "decide"]


def decide(
    fleet: Fleet, group: Sequence[Request], policy: Policy, *, plain: bool = False, explained: bool = True
) -> Plan | Refusal:
    """Place every pod of the group, or refuse because of the first that has no place.

    `plain` takes the slow path that looks at every node; the outcome is the same. A refusal that is not to be
    `explained` costs nothing, and says nothing.
    """
    mark = fleet.checkpoint()
    operations: list[Operation] = []
    for request in group:
        policy.mix.observe(request)
        found = None if request.gated else best_seat(fleet, request, policy.for_request(request), plain=plain)
        if found is None:
            refusal = explain.refuse(fleet, request, policy) if explained else unexplained(request)
            fleet.rollback(mark)
            return refusal
        operations += assume(fleet, request, found)
    fleet.release(mark)
    return Plan(tuple(operations))


def assume(fleet: Fleet, request: Request, chosen: Seat) -> list[Operation]:
    """Enter a seat into the fleet; the operations that make it true."""
    operations: list[Operation] = []
    for piece in chosen.slices:
        claim = _claim(request, chosen.node, piece)
        fleet.add_slice(claim.name, piece.gpu, piece.profile, piece.start, piece.size, request.uid)
        operations.append(claim)
    for number, (gpu, mib) in enumerate(chosen.shares):
        fleet.add_share(share_key(request.uid, number), gpu, mib, request.uid)
    fleet.add_pod(request, chosen.node, chosen.devices)
    pod = (request.uid, request.namespace, request.name, chosen.node)
    operations.append(BindShare(*pod, chosen.shares) if chosen.shares else Bind(*pod))
    return operations


def _claim(request: Request, node: str, placement: SlicePlacement) -> ClaimSlice:
    name = claim_name(request.uid, placement.container, placement.index)
    return ClaimSlice(name, request.uid, request.namespace, request.name, node, placement)
