"""A reservation that an earlier leader made and wrote down as the nominated node of a pod."""

from __future__ import annotations

from apportion.apis.identities import NodeName
from apportion.apis.request import Request
from apportion.core import group_turns
from apportion.core.evictions import reservation_pods
from apportion.core.filters import Checks
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import Reservation
from apportion.core.placement.node_placement import placement
from apportion.core.policies import Policy
from apportion.core.queues import gates
from apportion.core.queues.accounts import Charge


def reservation_key(request: Request, owner: str) -> str:
    return f"{owner}/{request.uid}"


def reserve_again(fleet: Fleet, request: Request, name: NodeName, policy: Policy) -> Reservation | None:
    """What the pod needs on that node once the pods that are terminating there are gone. None if it does not fit, or
    its queue does not allow it: pods that were to be evicted still run."""
    node = fleet.nodes.get(name)
    if node is None or node.facts is None:
        return None
    leaving = reservation_pods.leaving(fleet, node)
    rules = policy.for_request(request)
    rules.prepare(fleet)
    mark = fleet.checkpoint()
    for uid in leaving:
        fleet.take_away(uid)
    found = placement(node, request, rules) if Checks(fleet, request).against(node) is None else None
    fleet.rollback(mark)
    charge = Charge(request.queue, group_turns.wanted(fleet, request), not request.preemptible)
    if found is None or gates.against(fleet.accounts, charge.queue, charge.amounts, fixed=charge.fixed) is not None:
        return None
    return Reservation(
        key=reservation_key(request, request.group_key),
        node=name,
        resources=request.resources,
        slices=tuple(place for _, place in found.slices),
        owner=request.group_key,
        after=leaving,
        shares=found.shares,
        charge=charge,
    )
