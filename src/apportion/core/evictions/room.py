"""Make room for a group that has no place: by moving others, by reclaiming, by preempting.

The result is a statement: places are reserved for the group and for those that move, then the others are evicted.
Nobody is evicted before the whole group has a place, and not before these places are written down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import chain

from apportion.apis.identities import NodeName, PodUID
from apportion.apis.request import Request
from apportion.core.evictions import reservation_pods
from apportion.core.evictions.eviction_reasons import EvictionReasons
from apportion.core.evictions.nominations import reservation_key
from apportion.core.evictions.plans import Plan
from apportion.core.evictions.rules import Moves, Preemption, Reclaim, Rules, Taker
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.evictions.search import Search
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import Reservation
from apportion.core.group_turns import needed, wanted
from apportion.core.groups import Group, successor_key
from apportion.core.operations import Evict, KeepPlaces, Operation, Reserve
from apportion.core.placement.node_placement import NodePlacement
from apportion.core.policies import Policy
from apportion.core.queues.accounts import Charge
from apportion.core.queues.shares import Shares
from apportion.core.reasons import Code
from apportion.core.statement import Statement

CAN_HELP = frozenset({Code.NOT_PLACED, Code.OVER_LIMIT})  # reasons for which it is worth to look for room


class Consolidation(StrEnum):
    """Which pods are moved only to make room for a pod that asks for GPUs."""

    OFF = "off"
    GPUS = "gpus"  # those with whole GPUs, shares or none
    SLICES = "slices"  # those with slices too, and for slices


def make_room(
    fleet: Fleet,
    group: Group,
    policy: Policy,
    shares: Shares,
    running: RunningGroups,
    consolidation: Consolidation = Consolidation.GPUS,
) -> Statement | None:
    """The statement is applied to the fleet, and `running` follows; None if there is no way.

    A group whose places are reserved already gets no others: see `lost_places` for those that are of no use any more.
    """
    if fleet.reserves_for(group.key):
        return None
    running.follow()
    first = group.members[0]
    taker = Taker(group.key, first.queue, group.priority, needed(fleet, group.members))
    moves = _moves(fleet, group, taker, running, consolidation)
    for rules in chain(moves, _takes(fleet, shares, taker, running)):
        plan = Search(fleet, policy, group.members, taker, running, rules).best()
        if plan is not None:
            statement = Statement(group, tuple(_operations(fleet, group, plan, rules)))
            statement.apply(fleet)
            running.take_out(plan.evicted)
            return statement
    return None


def _moves(
    fleet: Fleet, group: Group, taker: Taker, running: RunningGroups, consolidation: Consolidation
) -> Iterator[Rules]:
    slices = consolidation is Consolidation.SLICES
    if consolidation is Consolidation.OFF or taker.need.gpu <= 0:
        return
    if slices or not any(member.slices for member in group.members):
        yield Moves(fleet.accounts.tree, taker, running, slices=slices)


def _takes(fleet: Fleet, shares: Shares, taker: Taker, running: RunningGroups) -> Iterator[Rules]:
    reclaim = Reclaim(fleet.accounts, shares, taker, running)
    if not reclaim.hopeless:
        yield reclaim
    preemption = Preemption(fleet.accounts, shares, taker, running)
    if fleet.releasing or not preemption.hopeless:  # nobody has to go where others are terminating
        yield preemption


def _operations(fleet: Fleet, group: Group, plan: Plan, rules: Rules) -> Iterator[Operation]:
    evicted = [pod.uid for pod in plan.evicted]  # on other nodes too: a limit may stop the group until they are gone
    places = [Reserve(pod, _reservation(fleet, pod, place, group.key, evicted)) for pod, place in plan.placements]
    yield from places
    written = tuple(each.confirmed_by for each in places)
    if plan.moves:
        moved = tuple(pod.request for pod, _ in plan.moves)
        kept = tuple(
            _reservation(fleet, pod.request, place, successor_key(pod.request), _evicted_from(place.node, plan))
            for pod, place in plan.moves
        )
        keep = KeepPlaces(group.members[0], moved, kept, after=written)
        written += (keep.confirmed_by,)
        yield keep
    reasons = EvictionReasons(rules, group)
    next_nodes = {pod.uid: place.node for pod, place in plan.moves}
    for pod in plan.evicted:
        yield Evict(pod.request, pod.node, reasons.said(pod, next_nodes.get(pod.uid)), written)


def _evicted_from(node: NodeName, plan: Plan) -> list[PodUID]:
    return [pod.uid for pod in plan.evicted if pod.node == node]


def _reservation(
    fleet: Fleet, request: Request, place: NodePlacement, owner: str, evicted: Sequence[PodUID]
) -> Reservation:
    node = fleet.nodes[place.node]
    return Reservation(
        key=reservation_key(request, owner),
        node=place.node,
        resources=request.resources,
        slices=tuple(placement for _, placement in place.slices),
        owner=owner,
        after=(*evicted, *reservation_pods.leaving(fleet, node, evicted)),
        shares=place.shares,
        charge=Charge(request.queue, wanted(fleet, request), not request.preemptible),
    )
