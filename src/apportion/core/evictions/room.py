"""Make room for a group that has no place: by moving others, by reclaiming, by preempting.

The result is a statement: places are reserved for the group and for those that move, then the others are evicted.
Nobody is evicted before the whole group has a place.
"""

from __future__ import annotations

from collections.abc import Iterator

from apportion.apis.identities import NodeName, PodUID
from apportion.apis.request import Request
from apportion.core.evictions.nominations import reservation_key
from apportion.core.evictions.plans import Plan
from apportion.core.evictions.rules import Moves, Preemption, Reclaim, Rules, Taker
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.evictions.search import Search
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import Reservation
from apportion.core.group_turns import needed, wanted
from apportion.core.groups import Group, successor_key
from apportion.core.operations import Evict, KeepPlace, Operation, Reserve
from apportion.core.placement.node_placement import NodePlacement
from apportion.core.policies import Policy
from apportion.core.queues import gates
from apportion.core.queues.accounts import Charge
from apportion.core.queues.shares import Shares
from apportion.core.reasons import Code
from apportion.core.statement import Statement

CAN_HELP = frozenset({Code.NOT_PLACED, Code.OVER_LIMIT})  # reasons for which it is worth to look for room


def make_room(fleet: Fleet, group: Group, policy: Policy, shares: Shares, running: RunningGroups) -> Statement | None:
    """The statement is applied to the fleet; None if there is no way."""
    first = group.members[0]
    need = needed(fleet, group.members)
    taker = Taker(group.key, first.queue, group.priority, need)

    def open_gates() -> bool:
        return gates.exceeded(fleet.accounts, first.queue, need, fixed=not first.preemptible) is None

    for rules in _rules(fleet, shares, taker):
        plan = Search(fleet, policy, group.members, running, rules, open_gates=open_gates).best()
        if plan is not None:
            statement = Statement(group, tuple(_operations(fleet, group, plan)))
            statement.apply(fleet)
            return statement
    return None


def _rules(fleet: Fleet, shares: Shares, taker: Taker) -> Iterator[Rules]:
    yield Moves(taker)
    reclaim = Reclaim(fleet.accounts, shares, taker)
    if reclaim.open:
        yield reclaim
    yield Preemption(taker)


def _operations(fleet: Fleet, group: Group, plan: Plan) -> Iterator[Operation]:
    gone: dict[NodeName, list[PodUID]] = {}
    for pod in plan.evicted:
        gone.setdefault(pod.node, []).append(pod.uid)
    for request, place in plan.placements:
        yield Reserve(request, _reservation(fleet, request, place, group.key, gone))
    for pod, place in plan.moves:
        yield KeepPlace(pod.request, _reservation(fleet, pod.request, place, successor_key(pod.request), gone))
    for pod in plan.evicted:
        yield Evict(pod.request, pod.node, f"evicted for {group.name}")


def _reservation(
    fleet: Fleet, request: Request, place: NodePlacement, owner: str, gone: dict[NodeName, list[PodUID]]
) -> Reservation:
    node = fleet.nodes[place.node]
    leaving = [uid for uid in node.pods if uid in fleet.releasing]
    return Reservation(
        key=reservation_key(request, owner),
        node=place.node,
        resources=request.resources,
        slices=tuple(placement for _, placement in place.slices),
        owner=owner,
        after=(*gone.get(place.node, ()), *leaving),
        shares=place.shares,
        charge=Charge(request.queue, wanted(fleet, request), not request.preemptible),
    )
