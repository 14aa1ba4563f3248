"""Find whom to evict for a group: as few and as unimportant pods as possible.

Node by node, victims are taken in their order until a pod fits, and those that turn out not to be needed are left.
The best of these sets are then worked out in full: the whole group is placed, victims that fit elsewhere are moved, and
the rules are asked about those that are lost. Small sets of few candidates are searched through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations

from apportion.apis.identities import PodUID
from apportion.apis.request import Request
from apportion.core import group_decision
from apportion.core.evictions import plans
from apportion.core.evictions.plans import Plan
from apportion.core.evictions.rules import Rules
from apportion.core.evictions.running_groups import RunningGroups, RunningPod
from apportion.core.filters import Checks
from apportion.core.filters import nodes as node_rules
from apportion.core.fleet import Fleet
from apportion.core.node import NodeState
from apportion.core.placement.node_placement import NodePlacement, placement
from apportion.core.placement.selection import best_placement
from apportion.core.policies import Policy

MOST_OPTIONS = 8  # nodes that are worked out in full
MOST_TRIALS = 400  # of other sets, if there are few candidates
MOST_SEARCHED = 24  # candidates that are searched through
MOST_PRUNED = 64

Pods = tuple[RunningPod, ...]


class Search:
    """For the members of one group. `open_gates` says whether the queues allow what they hold then."""

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy,
        members: Sequence[Request],
        running: RunningGroups,
        rules: Rules,
        *,
        open_gates: Callable[[], bool] = lambda: True,
        budgets: Callable[[Iterable[RunningPod]], bool] = lambda _: True,
    ) -> None:
        self._fleet, self._policy = fleet, policy
        self._members = tuple(members)
        self._running, self._rules = running, rules
        self._open_gates, self._within_budgets = open_gates, budgets
        self._allowed: dict[str, bool] = {}
        self._trials = 0

    def best(self) -> Plan | None:
        """The best plan that was found; None if there is none."""
        for request in self._members:
            self._policy.for_request(request).prepare(self._fleet)
        found = self._better(None, self._worked_out(()))
        if found is not None:
            return found
        for pods in self._candidates():
            found = self._better(found, self._worked_out(pods))
        found = self._searched(found)
        return self._pruned(found) if found is not None else None

    def _candidates(self) -> Iterator[Pods]:
        if len(self._members) == 1:
            options = sorted(self._options(self._members[0]), key=lambda option: option[0])
            yield from (pods for _, pods in options[:MOST_OPTIONS])
            return
        found = self._greedy()
        if found is not None:
            yield found

    def _greedy(self) -> Pods | None:
        """One member after the other, each where it costs least beside what is taken already."""
        chosen: list[RunningPod] = []
        with self._trial():
            for request in self._members:
                options = list(self._options(request, chosen))
                if not options:
                    return None
                _, pods = min(options, key=lambda option: option[0])
                chosen += pods
                for pod in self._running.with_whole_groups(chosen):
                    self._remove(pod)
                if not self._place(request):
                    return None
        return tuple(chosen)

    def _options(self, request: Request, chosen: Sequence[RunningPod] = ()) -> Iterator[tuple[object, Pods]]:
        """For each node whom to take there, with the price of it."""
        gone = {pod.uid for pod in self._running.with_whole_groups(chosen)}
        for node in self._fleet:
            if node_rules.against(node, request) is not None:
                continue
            for pods in self._on_node(node, request, gone):
                whole = self._running.with_whole_groups((*chosen, *pods))
                more = [pod for pod in whole if pod.uid not in gone]
                yield (*plans.loss(more), node.name), pods

    def _on_node(self, node: NodeState, request: Request, gone: set[PodUID]) -> Iterator[Pods]:
        allowed = [pod for pod in self._running.on_node.get(node.name, ()) if pod.uid not in gone and self._may(pod)]
        in_order = self._prefix(node, request, allowed)
        if in_order is None:
            return
        yield in_order
        if len(in_order) > 1:
            level = max(pod.group.level for pod in in_order)
            largest = sorted(
                (pod for pod in allowed if pod.group.level <= level), key=lambda pod: (-pod.amounts.gpu, pod.age)
            )
            other = self._prefix(node, request, largest)
            if other is not None and other != in_order:
                yield other

    def _prefix(self, node: NodeState, request: Request, pods: Sequence[RunningPod]) -> Pods | None:
        """The first of these that make room, without those among them that are not needed."""
        taken: list[RunningPod] = []
        with self._trial():
            self._clear(node)
            for pod in (None, *pods):
                if pod is not None:
                    taken.append(pod)
                    self._remove(pod)
                if self._fits(node, request):
                    break
            else:
                return None
        for pod in sorted(taken, key=lambda pod: (pod.group.level, pod.age), reverse=True):
            if len(taken) == 1:
                break
            fewer = [other for other in taken if other is not pod]
            with self._trial():
                self._clear(node)
                for other in fewer:
                    self._remove(other)
                if self._fits(node, request):
                    taken = fewer
        return tuple(taken)

    def _searched(self, found: Plan | None) -> Plan | None:
        """Look through small sets if there are few candidates: there may be one with fewer pods."""
        candidates = [pod for pod in self._running.pods if self._may(pod)]
        most = len(found.evicted) if found is not None and not self._rules.moves_only else 4
        if not candidates or len(candidates) > MOST_SEARCHED or (found is not None and most < 2):
            return found
        self._trials = 0
        for size in range(1, min(most, len(candidates)) + 1):
            for pods in combinations(candidates, size):
                self._trials += 1
                if self._trials > MOST_TRIALS:
                    return found
                if found is not None and plans.loss(pods)[0] > plans.loss(found.lost)[0]:
                    continue
                found = self._better(found, self._worked_out(pods))
        return found

    def _pruned(self, found: Plan) -> Plan:
        """Without pods that are not needed."""
        if len(found.evicted) > MOST_PRUNED:
            return found
        for pod in sorted(found.evicted, key=lambda pod: (pod.group.level, pod.age), reverse=True):
            fewer = tuple(other for other in found.evicted if other is not pod)
            if len(fewer) < len(found.evicted):
                better = self._worked_out(fewer)
                if better is not None and better.cost < found.cost:
                    found = better
        return found

    def _worked_out(self, pods: Iterable[RunningPod]) -> Plan | None:
        """The plan with these victims; None if the group gets no place by it, or a rule forbids it."""
        evicted = self._running.with_whole_groups(pods)
        if not all(self._may(pod) for pod in evicted) or not self._within_budgets(evicted):
            return None
        with self._trial():
            for pod in evicted:
                self._remove(pod)
            for node in {pod.node for pod in evicted} or {node.name for node in self._fleet}:
                self._clear(self._fleet.nodes[node])
            placements = []
            for request in self._members:
                found = self._place(request)
                if found is None:
                    return None
                placements.append((request, found))
            plan = Plan(evicted, tuple(placements), tuple(self._moves(evicted)))
            if not self._open_gates():
                return None
        return plan if self._rules.allows_loss(plan.lost) else None

    def _moves(self, evicted: Iterable[RunningPod]) -> Iterator[tuple[RunningPod, NodePlacement]]:
        """Other places for evicted pods, group by group, the most important and oldest first."""
        groups: dict[str, list[RunningPod]] = {}
        for pod in sorted(evicted, key=lambda pod: (pod.group.level, pod.age), reverse=True):
            groups.setdefault(pod.group.key, []).append(pod)
        for pods in groups.values():
            mark = self._fleet.checkpoint()
            moved = [(pod, found) for pod in pods if pod.movable and (found := self._place(pod.request)) is not None]
            lost = {pod.uid for pod in pods} - {pod.uid for pod, _ in moved}
            if pods[0].group.spared_by(lost):
                self._fleet.release(mark)
                yield from moved
            else:
                self._fleet.rollback(mark)

    def _place(self, request: Request) -> NodePlacement | None:
        found = best_placement(self._fleet, request, self._policy.for_request(request))
        if found is not None:
            group_decision.assume(self._fleet, request, found)
        return found

    def _fits(self, node: NodeState, request: Request) -> bool:
        if Checks(self._fleet, request).against(node) is not None:
            return False
        return placement(node, request, self._policy.for_request(request)) is not None

    def _may(self, pod: RunningPod) -> bool:
        group = pod.group
        known = self._allowed.get(group.key)
        if known is None:
            known = self._allowed[group.key] = self._rules.allows(group)
        return known

    def _clear(self, node: NodeState) -> None:
        """What is terminating there will be gone."""
        for uid in [uid for uid in node.pods if uid in self._fleet.releasing]:
            self._take_away(uid)

    def _remove(self, pod: RunningPod) -> None:
        self._take_away(pod.uid)

    def _take_away(self, uid: PodUID) -> None:
        for held in self._fleet.slices_of(uid):
            self._fleet.remove_slice(held.key)
        for share in self._fleet.shares_of(uid):
            self._fleet.remove_share(share.key)
        self._fleet.remove_pod(uid)

    @contextmanager
    def _trial(self) -> Iterator[None]:
        mark = self._fleet.checkpoint()
        try:
            yield
        finally:
            self._fleet.rollback(mark)

    @staticmethod
    def _better(one: Plan | None, other: Plan | None) -> Plan | None:
        if one is None or other is None:
            return other if one is None else one
        return other if other.cost < one.cost else one
