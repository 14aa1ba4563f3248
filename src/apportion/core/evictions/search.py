"""Find whom to evict for a group: as few and as unimportant pods as possible.

For one pod the best node is taken (`node_options`); for several, one member after the other gets the node where it
costs least beside what is taken already. Victims that fit elsewhere are moved, and the rules are asked about those
that are lost. Where that does not lead to the best plan for certain, small sets of few candidates are searched through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, combinations, islice

import msgspec

from apportion.apis.identities import NO_NODE, NodeName, PodUID
from apportion.apis.request import Request
from apportion.core import equivalence, group_decision
from apportion.core.evictions import plans, trials
from apportion.core.evictions.node_options import Chosen, NodeOptions, Option
from apportion.core.evictions.plans import Placements, Plan, Pods
from apportion.core.evictions.rules import Extent, Rules, Taker
from apportion.core.evictions.running_group import RunningPod, amounts_of
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.fleet import Fleet
from apportion.core.placement.node_placement import NodePlacement
from apportion.core.placement.selection import best_placement
from apportion.core.policies import Policy
from apportion.core.queues import gates, totals
from apportion.core.queues.accounts import FOREIGN
from apportion.core.queues.amounts import Amounts
from apportion.core.queues.gates import Gate

MOST_OPTIONS = 8  # nodes that are worked out in full
MOST_SETS = 20_000  # of few candidates that are looked at,
MOST_TRIALS = 100  # and of them that are tried out
MOST_SEARCHED = 24  # candidates that are searched through
MOST_PRUNED = 64


class Search:
    """For the members of one group."""

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy,
        members: Sequence[Request],
        taker: Taker,
        running: RunningGroups,
        rules: Rules,
    ) -> None:
        self._fleet, self._policy = fleet, policy
        self._members, self._taker = tuple(members), taker
        self._running, self._rules = running, rules
        self._extents: dict[str, Extent] = {}
        self._certain = False  # no plan can be better
        self._forbidden = False  # a plan was found that takes too much of somebody

    def best(self) -> Plan | None:
        """The best plan that was found; None if there is none."""
        hopeless = (self._rules.kind, self._taker.queue, self._taker.priority, self._classes())
        if self._running.options.get(hopeless) == self._running.generation or not self._worth_trying():
            return None
        for request in self._members:
            self._policy.for_request(request).prepare(self._fleet)
        found: Plan | None = None
        for plan in self._plans():
            found = _better(found, plan)
        if self._forbidden and self._rules.allows_any and not self._certain:
            for plan in self._plans(jointly=True):
                found = _better(found, plan)
        if not self._certain:
            found = self._searched(found)
            found = self._pruned(found) if found is not None else None
        if found is None:
            self._running.options[hopeless] = self._running.generation
        return found

    def _worth_trying(self) -> bool:
        """Moves free nothing in sum, neither for the queue nor in the cluster."""
        if not self._rules.moves_only:
            return True
        free, need = self._free(), self._taker.need
        rounding = free.gpu // 100  # of shares and slices
        if free.gpu + rounding < need.gpu or free.cpu < need.cpu or free.memory < need.memory:
            return False
        return self._closed(()) is None

    def _free(self) -> Amounts:
        """What nobody holds, wherever it is."""
        capacity = self._running.options.get("capacity")
        accounts = self._fleet.accounts
        if capacity is None:
            capacity = totals.total(self._fleet).plus(accounts.used(FOREIGN))
            self._running.options["capacity"] = capacity
        return capacity.minus(accounts.everything)

    def _plans(self, *, jointly: bool = False) -> Iterator[Plan]:
        """With those who cost least on each node; `jointly`: with those of them who may go together by the rules."""
        first = self._for_limits()
        if first is None:
            return
        if len(self._members) > 1 or first:
            plan = self._one_by_one(first, jointly=jointly)
            if plan is not None:
                yield plan
            return
        options = self._options(self._members[0], jointly=jointly)
        options.follow()
        self._certain = options.best() is None and not jointly
        for number, option in enumerate(options.ranked(MOST_OPTIONS)):
            plan = self._finished(option.pods, ((self._members[0], option.place),))
            if plan is None:
                continue
            self._certain = number == 0 and not jointly and not self._others_may_move(plan.evicted)
            yield plan
            if self._certain:
                return

    def _one_by_one(self, first: Sequence[RunningPod], *, jointly: bool) -> Plan | None:
        """One member after the other, each where it costs least beside what is taken already."""
        chosen = Chosen()
        classes = [equivalence.node_class(request) for request in self._members]
        known = dict(zip(classes, self._members, strict=True))
        options = {key: self._options(request, jointly=jointly) for key, request in known.items()}
        counted = all(each.counted for each in options.values())
        for each in options.values():
            each.follow()
        if not first and any(each.best() is None for each in options.values()):
            self._certain = not jointly
            return None
        placements: list[tuple[Request, NodePlacement]] = []
        evicted: list[RunningPod] = []
        with trials.trial(self._fleet):
            copies = {key: each.beside(chosen) for key, each in options.items()}
            evicted += self._go(first, (), chosen, copies.values(), counted=counted)
            for key, request in zip(classes, self._members, strict=True):
                option = copies[key].best()
                if option is None:
                    return None
                placements.append((request, option.place))
                evicted += self._go(option.pods, (request, option), chosen, copies.values(), counted=counted)
        return self._finished(evicted, tuple(placements))

    def _go(
        self,
        pods: Iterable[RunningPod],
        placed: tuple[Request, Option] | tuple[()],
        chosen: Chosen,
        options: Iterable[NodeOptions],
        *,
        counted: bool,
    ) -> Pods:
        """Take these pods away, put a member in their place, and tell all options; who goes by that."""
        more = chosen.more(chosen.with_groups(pods))
        touched = {pod.node for pod in more}
        for pod in more:
            chosen.take(pod)
            if not counted:
                self._fleet.take_away(pod.uid)
        if placed:
            request, option = placed
            touched.add(option.node)
            if counted:
                chosen.placed.setdefault(option.node, []).append(request)
            else:
                trials.clear(self._fleet, self._fleet.nodes[option.node])
                group_decision.assume(self._fleet, request, option.place)
        for each in options:
            each.refresh(touched)
        return more

    def _for_limits(self) -> list[RunningPod] | None:
        """Whom to take so that the queues above do not exceed their limits; None if that is not possible."""
        chosen: list[RunningPod] = []
        closed = self._closed(())
        if closed is None:
            return chosen
        if closed.gate is Gate.QUOTA:
            return None
        tree = self._fleet.accounts.tree
        for pod in self._running.pods:
            if closed is None:
                break
            if closed.queue not in tree.path(pod.group.queue):
                continue
            more = self._running.with_whole_groups((*chosen, pod))
            if self._may(more):
                chosen.append(pod)
                closed = self._closed(more)
        return chosen if closed is None else None

    def _closed(self, lost: Iterable[RunningPod]) -> gates.Closed | None:
        freed = [(pod.group.queue, pod.amounts) for pod in lost]
        fixed = not self._members[0].preemptible
        return gates.after(self._fleet.accounts, self._taker.queue, self._taker.need, freed, fixed=fixed)

    def _options(self, request: Request, *, jointly: bool) -> NodeOptions:
        if jointly:  # who may go depends on the taker
            return NodeOptions(self._fleet, self._policy, request, self._running, self._may_lose, jointly=True)
        key = (self._rules.kind, equivalence.request_class(self._fleet, request))
        kept = self._running.options.get(key)
        if kept is None:
            kept = self._running.options[key] = NodeOptions(
                self._fleet, self._policy, request, self._running, self._may
            )
        assert isinstance(kept, NodeOptions)
        kept.may = self._may
        return kept

    def _searched(self, found: Plan | None) -> Plan | None:
        """Look through small sets if there are few candidates: there may be a better one."""
        candidates = [pod for pod in self._running.pods if self._may(self._running.with_whole_groups((pod,)))]
        if not candidates or len(candidates) > MOST_SEARCHED:
            return found
        lower = found is not None and any(pod.group.level < found.cost[0] for pod in candidates)
        if found is not None and len(found.evicted) <= 1 and not lower:
            return found
        if found is None and self._places(self._running.with_whole_groups(candidates)) is None:
            return None
        most = len(candidates)
        if found is not None and not lower and not self._rules.moves_only:
            most = len(found.evicted)
        tried = 0
        for pods in islice(self._sets(candidates, most), MOST_SETS):
            if self._promises(self._running.with_whole_groups(pods), found):
                tried += 1
                if tried > MOST_TRIALS:
                    break
                found = _better(found, self._worked_out(pods))
        return found

    def _sets(self, candidates: Sequence[RunningPod], most: int) -> Iterator[tuple[RunningPod, ...]]:
        """The small ones first."""
        pools = list(self._pools(candidates))
        for size in range(1, most + 1):
            yield from chain.from_iterable(combinations(pool, size) for pool in pools)

    def _promises(self, evicted: Pods, found: Plan | None) -> bool:
        """As far as can be said without trying it out, these may go, it is enough, and better than `found`."""
        if self._too_little(evicted) or not self._may(evicted) or self._closed(evicted) is not None:
            return False
        if self._may_move(evicted):
            return True
        better = found is None or plans.loss(evicted) < found.cost[:-1]
        return better and self._rules.allows_loss(evicted, evicted)

    def _pools(self, candidates: Sequence[RunningPod]) -> Iterable[Sequence[RunningPod]]:
        """One pod needs room on one node, unless limits require that others go too."""
        if len(self._members) > 1 or self._closed(()) is not None:
            return [candidates]
        pools: dict[NodeName, list[RunningPod]] = {}
        for pod in candidates:
            pools.setdefault(pod.node, []).append(pod)
        return pools.values()

    def _pruned(self, found: Plan) -> Plan:
        """Without pods that are not needed."""
        if len(found.evicted) > MOST_PRUNED:
            return found
        units = sorted(
            _units(found.evicted), key=lambda unit: (unit[0].group.level, len(unit), unit[0].age), reverse=True
        )
        for left_out in units:
            fewer = tuple(pod for pod in found.evicted if pod not in left_out)
            if len(fewer) == len(found.evicted):
                continue
            moved = {pod.uid for pod, _ in found.moves} - {pod.uid for pod in left_out}
            for only in (None, moved) if moved else (None,):
                better = self._worked_out(fewer, only)
                if better is not None and better.cost < found.cost:
                    found = better
        return found

    def _worked_out(self, pods: Iterable[RunningPod], only: AbstractSet[PodUID] | None = None) -> Plan | None:
        """The plan with these victims; None if the group gets no place by it, or a rule forbids it. `only` these pods
        are moved, if that is said."""
        evicted = self._running.with_whole_groups(pods)
        placements = self._places(evicted) if self._may(evicted) else None
        return self._finished(evicted, placements, only) if placements is not None else None

    def _places(self, evicted: Pods) -> Placements | None:
        """Where the members go if these pods are gone, each where it is best for the policy."""
        placements = []
        with trials.trial(self._fleet):
            self._take_away(evicted)
            for request in self._members:
                place = self._place(request)
                if place is None:
                    return None
                placements.append((request, place))
        return tuple(placements)

    def _take_away(self, evicted: Pods) -> None:
        """These, and everybody who is terminating already."""
        fleet = self._fleet
        uids = [uid for uid in (*(pod.uid for pod in evicted), *fleet.releasing) if uid in fleet.pod_nodes]
        nodes = {fleet.pod_nodes[uid] for uid in uids}
        for uid in uids:
            fleet.take_away(uid)
        for name in nodes & fleet.nodes.keys():
            trials.clear(fleet, fleet.nodes[name])

    def _finished(
        self, pods: Iterable[RunningPod], placements: Placements, only: AbstractSet[PodUID] | None = None
    ) -> Plan | None:
        """With moves of those that find another place; None if a rule forbids what is lost then."""
        evicted = self._running.with_whole_groups(pods)
        if not self._may(evicted) or self._closed(evicted) is not None:
            return None
        plan = Plan(evicted, placements)
        if self._may_move(evicted):
            with_moves = Plan(evicted, placements, self._moves(evicted, placements, only))
            if self._closed(with_moves.lost) is None:  # who is moved still counts for the limits of its queue
                plan = with_moves
        if not self._rules.allows_loss(plan.lost, plan.evicted):
            self._forbidden = True
            return None
        return plan if not self._pays(plan) else None

    def _pays(self, plan: Plan) -> bool:
        """Somebody goes only so that the rules allow the plan, and not to make room."""
        if self._rules.allows_any or self._rules.allows_loss((), ()) or len(plan.evicted) > MOST_PRUNED:
            return False
        needed, lost = plan.evicted, plan.lost
        for left_out in _units(plan.evicted):
            fewer = tuple(pod for pod in needed if pod not in left_out)
            still_lost = tuple(pod for pod in lost if pod not in left_out)
            if self._closed(still_lost) is None and self._places(fewer) is not None:
                needed, lost = fewer, still_lost
        return len(needed) < len(plan.evicted) and not self._rules.allows_loss(lost, needed)

    def _may_move(self, evicted: Iterable[RunningPod]) -> bool:
        """There is anything left that one of them could use."""
        pods = tuple(evicted)
        movable = [pod for pod in pods if pod.movable]
        if not movable:
            return False
        left = self._free().plus(amounts_of(pods)).minus(self._taker.need)
        rounding = left.gpu // 100
        return any(
            pod.amounts.gpu <= left.gpu + rounding and pod.amounts.cpu <= left.cpu and pod.amounts.memory <= left.memory
            for pod in movable
        )

    def _too_little(self, evicted: Pods) -> bool:
        """There is not enough for the group in sum."""
        left = self._free().plus(amounts_of(evicted)).minus(self._taker.need)
        rounding = self._taker.need.gpu // 100
        return left.gpu + rounding < 0 or left.cpu < 0 or left.memory < 0

    def _others_may_move(self, evicted: Pods) -> bool:
        """Enough is left for the smallest pod that can be moved, so that plans with moves may be better."""
        left = self._free().plus(amounts_of(evicted)).minus(self._taker.need)
        asked = [number for number, amount in enumerate(self._taker.need) if amount > 0]
        return all(left[number] >= self._running.smallest_movable[number] for number in asked)

    def _moves(
        self, evicted: Pods, placements: Placements, only: AbstractSet[PodUID] | None
    ) -> tuple[tuple[RunningPod, NodePlacement], ...]:
        """Other places for evicted pods, group by group, the most important and oldest first."""
        moves: list[tuple[RunningPod, NodePlacement]] = []
        groups: dict[str, list[RunningPod]] = {}
        for pod in sorted(evicted, key=lambda pod: (pod.group.level, pod.age), reverse=True):
            groups.setdefault(pod.group.key, []).append(pod)
        with trials.trial(self._fleet):
            self._take_away(evicted)
            for request, place in placements:
                group_decision.assume(self._fleet, request, place)
            for pods in groups.values():
                mark = self._fleet.checkpoint()
                asked = [pod for pod in pods if pod.movable and (only is None or pod.uid in only)]
                moved = [(pod, at) for pod in asked if (at := self._place(_unbound(pod))) is not None]
                lost = {pod.uid for pod in pods} - {pod.uid for pod, _ in moved}
                if pods[0].group.spared_by(lost):
                    self._fleet.release(mark)
                    moves += moved
                else:
                    self._fleet.rollback(mark)
        return tuple(moves)

    def _place(self, request: Request) -> NodePlacement | None:
        found = best_placement(self._fleet, request, self._policy.for_request(request))
        if found is not None:
            group_decision.assume(self._fleet, request, found)
        return found

    def _may(self, pods: Pods) -> bool:
        """All of these may be taken together: by the rules about their groups, and by their budgets."""
        for pod in pods:
            group = pod.group
            extent = self._extents.get(group.key)
            if extent is None:
                extent = self._extents[group.key] = self._rules.allows(group)
            if extent is Extent.EVERYTHING:
                continue
            if extent is Extent.NOTHING or not group.spared_by({each.uid for each in pods if each.group is group}):
                return False
        return self._running.budgets.allow(pod.uid for pod in pods)

    def _may_lose(self, pods: Pods) -> bool:
        """The same, and the rules allow that all of them are lost, with nobody moved."""
        return self._may(pods) and self._rules.allows_loss(pods, pods)

    def _classes(self) -> tuple[object, ...]:
        return tuple(equivalence.request_class(self._fleet, request) for request in self._members)


def _units(evicted: Pods) -> list[Pods]:
    """What can be left out: single pods of groups that keep their minimum, and whole groups."""
    groups: dict[str, list[RunningPod]] = {}
    for pod in evicted:
        groups.setdefault(pod.group.key, []).append(pod)
    found: list[Pods] = []
    for pods in groups.values():
        group, uids = pods[0].group, {pod.uid for pod in pods}
        found += [(pod,) for pod in pods if group.spared_by(uids - {pod.uid})]
        if not group.spared_by(uids):
            found.append(tuple(pods))
    return found


def _unbound(pod: RunningPod) -> Request:
    """As its controller makes it anew."""
    return msgspec.structs.replace(pod.request, node_name=NO_NODE) if pod.request.node_name else pod.request


def _better(one: Plan | None, other: Plan | None) -> Plan | None:
    if one is None or other is None:
        return other if one is None else one
    return other if other.cost < one.cost else one
