"""Decide about a group of pods: a statement for all of them, or a refusal.

All members get a place or none does. The statement is applied to the fleet immediately, so that the next decision takes
it into account. Everything that decides about a pod is here or below: scheduler, fallback and `why` get one answer.
"""

from __future__ import annotations

from collections import Counter
from itertools import count

import msgspec

from apportion.apis import shared_gpus
from apportion.apis.custom_resources.claims import claim_name
from apportion.apis.identities import DeviceUUID, NodeName
from apportion.apis.request import Request
from apportion.core import existing_claims, refusals
from apportion.core.explanations import explanation
from apportion.core.filters import storage
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import HeldSlice, Reservation
from apportion.core.groups import Group, successor_key
from apportion.core.operations import Bind, BindShare, BindVolume, ClaimSlice, Operation, Unreserve
from apportion.core.placement.node_placement import NodePlacement
from apportion.core.placement.selection import best_placement, placement_beside
from apportion.core.policies import Policy
from apportion.core.reasons import Code, Reason
from apportion.core.refusals import Refusal
from apportion.core.statement import Statement

__all__ = ["Group", "Refusal", "Statement", "decide", "kept_for", "place"]


def decide(
    fleet: Fleet,
    group: Group,
    policy: Policy,
    *,
    plain: bool = False,
    explained: bool = True,
    observed: bool = True,
) -> Statement | Refusal:
    """Place every pod of the group, or refuse because of the first that has no place.

    `plain` takes the slow path that looks at every node; the outcome is the same. A refusal that is not to be
    `explained` costs nothing, and says nothing about nodes. A simulated decision is not `observed`: it is no part of
    the request mix that the policy learns from.
    """
    mark = fleet.checkpoint()
    operations: list[Operation] = [Unreserve(each) for each in kept_for(fleet, group)]
    for operation in operations:
        operation.apply(fleet)
    for request in group.members:
        if observed:
            policy.mix.observe(request)
        found = _find(fleet, request, policy, plain=plain)
        if found is None:
            found = explanation.refuse(fleet, request, policy) if explained else refusals.unexplained(request)
        if isinstance(found, Refusal):
            fleet.rollback(mark)
            return found
        operations += assume(fleet, request, found)
    fleet.release(mark)
    return Statement(group, tuple(operations))


def kept_for(fleet: Fleet, group: Group) -> list[Reservation]:
    """What is reserved for the group, and one place for each member that follows a pod which was moved."""
    found = list(fleet.reservations_for(group.key))
    taken: Counter[str] = Counter()
    for request in group.members:
        owner = successor_key(request)
        if request.owner is not None and fleet.reserves_for(owner):
            left = fleet.reservations_for(owner)[taken[owner] :]
            found += left[:1]
            taken[owner] += 1
    return found


def place(fleet: Fleet, request: Request, policy: Policy) -> Statement | None:
    """A simulation for one pod whose scheduling gates do not matter; None if there is no place."""
    if request.gated:
        request = msgspec.structs.replace(request, gates=())
    outcome = decide(fleet, Group.of(request), policy, explained=False, observed=False)
    return outcome if isinstance(outcome, Statement) else None


def assume(fleet: Fleet, request: Request, chosen: NodePlacement) -> list[Operation]:
    """Enter a placement into the fleet; the operations that make it true."""
    before: list[ClaimSlice | BindVolume] = []
    if chosen.slices:
        before += _claims(request, chosen)
    if request.has_volume_claims:
        before += _volumes(fleet, request, chosen.node)
    after = tuple(operation.confirmed_by for operation in before)
    if chosen.shares:
        bind: Operation = BindShare(request, chosen.node, chosen.shares, _groups(fleet, request, chosen), after)
    else:
        bind = Bind(request, chosen.node, chosen.devices, after)
    operations: list[Operation] = [*before, bind]
    for operation in operations:
        operation.apply(fleet)
    return operations


def _groups(fleet: Fleet, request: Request, chosen: NodePlacement) -> tuple[str, ...]:
    """Those who share each GPU; the first one to share a GPU names them."""
    return tuple(fleet.group_on(gpu) or _new_group(fleet, request, chosen.node, gpu) for gpu, _ in chosen.shares)


def _new_group(fleet: Fleet, request: Request, node: NodeName, gpu: DeviceUUID) -> str:
    """If the kubelet gave the GPU of an earlier attempt to those who joined this pod, that name is theirs."""
    used = {fleet.shares[key].group for each in fleet.nodes[node].gpus.values() for key in each.shares}
    names = (shared_gpus.new_group(request.uid, node, gpu, number) for number in count())
    return next(name for name in names if name not in used)


def _find(fleet: Fleet, request: Request, policy: Policy, *, plain: bool) -> NodePlacement | Refusal | None:
    """A placement; None if no node has one; a refusal if the reason does not depend on nodes."""
    if request.gated:
        return refusals.of_pod(request, Code.GATED, ", ".join(request.gates))
    held = fleet.slices_of(request.uid) if fleet.holds(request.uid) else ()
    if held:
        return _beside(fleet, request, policy, held)
    if request.share is not None and not fleet.sharing:
        return refusals.of_pod(request, Code.NO_SHARING)
    return best_placement(fleet, request, policy.for_request(request), plain=plain)


def _beside(fleet: Fleet, request: Request, policy: Policy, held: tuple[HeldSlice, ...]) -> NodePlacement | Refusal:
    """The pod has slices from an earlier attempt, of this leader or of one before it."""
    if existing_claims.leaving(held):
        return refusals.of_pod(request, Code.CLAIMS_LEAVING)
    problem = existing_claims.obstacle(fleet, request, held)
    if problem is None:
        found = placement_beside(fleet, request, policy.for_request(request), held)
        if found is not None:
            return found
        problem = existing_claims.Obstacle(Reason(Code.NOT_SUFFICIENT))
    return refusals.of_pod(request, Code.CLAIMS_GIVEN_UP, problem.said)


def _claims(request: Request, chosen: NodePlacement) -> list[ClaimSlice]:
    return [
        ClaimSlice(
            claim_name(request.uid, want.container, want.index), request, chosen.node, placement, want.containers
        )
        for want, placement in chosen.slices
    ]


def _volumes(fleet: Fleet, request: Request, node: NodeName) -> list[BindVolume]:
    """What the pod's unbound volume claims get on this node."""
    facts = fleet.nodes[node].facts
    if fleet.storage is None or facts is None:
        return []
    volume_claims, volumes = fleet.storage.volume_claims, fleet.storage.volumes
    return [
        BindVolume(
            request,
            node,
            name,
            volume_claims[f"{request.namespace}/{name}"].uid,
            volume or "",
            volumes[volume].version if volume else "",
        )
        for name, volume in storage.volumes_for(fleet.storage, request, facts).items()
    ]
