"""What a group that waits is told about its queue, beside why it has no place: where the queue stands, and the change
of quotas or limits that would admit the group, if no smaller request does. What is proposed for a group of several pods
is tried out on all of them.

Worked out in steps, like explanations; nothing remains in the fleet between two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from dataclasses import replace

from apportion.core import equivalence, group_decision, refusals
from apportion.core.evictions import room
from apportion.core.evictions.room import Consolidation
from apportion.core.evictions.rules import Extent, Taker
from apportion.core.evictions.running_group import RunningGroup, RunningPod
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.evictions.search import Search
from apportion.core.evictions.trials import trial
from apportion.core.explanations import empty_cluster, explanation, queue_reasons, quota_remedies, remedies
from apportion.core.explanations.group_explanation import GroupExplanation
from apportion.core.explanations.queue_standing import standing
from apportion.core.fleet import Fleet
from apportion.core.group_turns import needed, still_needed
from apportion.core.groups import Group
from apportion.core.operations import Evict, Reserve
from apportion.core.policies import Policy
from apportion.core.queues import gates, raises
from apportion.core.queues.amounts import RESOURCES
from apportion.core.queues.entitlements import Entitlements
from apportion.core.reasons import Code
from apportion.core.refusals import Refusal, Remedy, wants_of
from apportion.core.statement import Statement

MOST_MEMBERS = 32  # of groups for which changes other than of queues are tried out
_MOST_KEPT = 64
_OF_POD = {remedies.SMALLER, remedies.MODEL}


class QueueAdvice:
    """`running` gives the groups that run, as they are now; `prepare` does most of the work for that, in steps."""

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy,
        entitlements: Entitlements,
        running: Callable[[], RunningGroups],
        consolidation: Consolidation = Consolidation.GPUS,
        *,
        prepare: Callable[[], Iterator[None]] = lambda: iter(()),
    ) -> None:
        self._fleet, self._policy, self._consolidation = fleet, policy, consolidation
        self._entitlements, self._running, self._prepare = entitlements, running, prepare
        self._inventory = fleet.inventory
        self._never: dict[Hashable, str] = {}  # by class: why it can never be scheduled

    def planned(self, group: Group) -> Refusal | None:
        """The eviction that the scheduler would plan now for a group without a place; None if there is none."""
        mark = self._fleet.checkpoint()
        try:
            shares = self._entitlements.update()
            statement = room.make_room(self._fleet, group, self._policy, shares, self._running(), self._consolidation)
        finally:
            self._fleet.rollback(mark)
        if statement is None:
            return None
        evictions = [each for each in statement.operations if isinstance(each, Evict)]
        places = [each for each in statement.operations if isinstance(each, Reserve)]
        nodes = ", ".join(sorted({each.reservation.node for each in places}))
        if evictions:
            return refusals.of_pod(group.members[0], Code.EVICTING, nodes, len(evictions))
        leaving = {uid for each in places for uid in each.reservation.after}
        return refusals.of_pod(group.members[0], Code.MAKING_ROOM, nodes, len(leaving))

    def without_place(self, group: Group, refusal: Refusal, *, tried: bool = True) -> Generator[None, None, Refusal]:
        """The refusal of the first pod of the group that has no place, completed. `tried`: changes of quotas are."""
        if refusal.detail or refusal.code is Code.NOT_PLACED:
            return refusal
        refusal = _about(group, refusal)
        yield from self._prepare()
        where = yield from standing(self._fleet, group, self._entitlements.update(), self._running)
        yield
        remedy = refusal.remedy if len(group.members) == 1 else (yield from self._verified(group, refusal))
        if tried and not _cheaper_than_quota(remedy):
            remedy = (yield from self._reclaiming(group)) or remedy
        if remedy is None and len(group.members) > 1:
            remedy = self._pods_to_end(group, refusal) or (yield from self._nodes_to_add(group, refusal))
        if remedy is not None and remedy.kind in _OF_POD:
            remedy = self._with_raises(group, refusal, remedy)
        remark = ""
        if refusal.groups and (len(group.members) > 1 or remedy is None):
            only_room = all(part.code.row.about_room for part in refusal.groups)
            remark = yield from self._can_never(group, only_room=only_room)
        code = Code.TOO_LARGE if remark and len(group.members) > 1 else refusal.code
        return replace(refusal, code=code, standing=where, remedy=remedy, remark=remark)

    def stopped(self, group: Group) -> Generator[None, None, Refusal | None]:
        """Of a group that a limit or a quota stops; None if nothing does any more."""
        first, fleet = group.members[0], self._fleet
        need = still_needed(fleet, group)
        closed = gates.against(fleet.accounts, first.queue, need, fixed=not first.preemptible)
        if closed is None:
            return None
        refusal = queue_reasons.closed(first, closed)
        nowhere = yield from self._nowhere(group)
        remedy: Remedy | None = None
        if len(group.members) == 1 and closed.resource == "gpu":
            remedy = yield from quota_remedies.smaller(fleet, first, self._policy)
        if remedy is not None:
            return replace(refusal, remedy=remedy)
        if nowhere is None:
            return replace(refusal, remedy=Remedy(remedies.QUOTA, raises=quota_remedies.passing(fleet, group)))
        if nowhere.detail:
            return refusal
        completed = yield from self._if_it_passed(group, nowhere)
        remedy = completed.remedy
        if remedy is not None:
            remedy = self._with_raises(group, nowhere, remedy)
        besides = completed.remark or "Besides, no node has room for it now."
        return replace(refusal, remedy=remedy, remark=besides)

    def _if_it_passed(self, group: Group, nowhere: Refusal) -> Generator[None, None, Refusal]:
        """The completed refusal, as it would be if no gate were in the way."""
        accounts = self._fleet.accounts
        raised = raises.applied(accounts.tree, quota_remedies.passing(self._fleet, group))
        steps = self.without_place(group, nowhere)
        while True:
            with quota_remedies.assumed(accounts, raised):
                try:
                    next(steps)
                except StopIteration as end:
                    refusal: Refusal = end.value
                    return refusal
            yield

    def _can_never(self, group: Group, *, only_room: bool) -> Generator[None, None, str]:
        """Worked out once for each class, as long as nodes and GPUs are the same."""
        fleet = self._fleet
        if self._inventory != fleet.inventory or len(self._never) >= _MOST_KEPT:
            self._inventory, self._never = fleet.inventory, {}
        kind = (equivalence.group_class(fleet, group), only_room)
        found = self._never.get(kind)
        if found is None:
            found = yield from empty_cluster.can_never(fleet, group, only_room=only_room)
            if self._inventory == fleet.inventory:
                self._never[kind] = found
        return found

    def _nowhere(self, group: Group) -> Generator[None, None, Refusal | None]:
        """Why the group would have no place if its queue let it pass; None if it would have one."""
        if len(group.members) == 1 and self._fits(group):
            return None
        yield
        return (yield from GroupExplanation(self._fleet, group, self._policy).steps())

    def _verified(self, group: Group, refusal: Refusal) -> Generator[None, None, Remedy | None]:
        """The remedy of the pod that was refused, if all others have their places with it too."""
        remedy = refusal.remedy
        if remedy is None or len(group.members) > MOST_MEMBERS:
            return None
        yield
        return remedy if self._admits(group, refusal, remedy) else None

    def _admits(self, group: Group, refusal: Refusal, remedy: Remedy) -> bool:
        with trial(self._fleet):
            return self._fits(remedies.apply_to_group(self._fleet, group, refusal.uid, remedy))

    def _fits(self, group: Group) -> bool:
        with trial(self._fleet):
            outcome = group_decision.decide(self._fleet, group, self._policy, explained=False, observed=False)
            return isinstance(outcome, Statement)

    def _reclaiming(self, group: Group) -> Generator[None, None, Remedy | None]:
        total, demand = self._entitlements.total, self._entitlements.demand.of_queues()
        return (yield from quota_remedies.reclaiming(self._fleet, group, self._policy, self._running, total, demand))

    def _pods_to_end(self, group: Group, refusal: Refusal) -> Remedy | None:
        running = self._running()
        if len(self._fleet.pod_nodes) > quota_remedies.MOST_PODS:
            return None
        first = group.members[0]
        taker = Taker(group.key, first.queue, group.priority, needed(self._fleet, group.members))
        running.options.clear()
        plan = Search(self._fleet, self._policy, group.members, taker, running, _Anybody(group.key)).best()
        running.options.clear()
        if plan is None:
            return None
        ended = [pod.request for pod in plan.evicted]
        remedy = Remedy(
            remedies.FREE,
            subject="room for the group",
            pods=tuple(pod.key for pod in ended),
            uids=tuple(pod.uid for pod in ended),
            count=len(ended),
        )
        return remedy if self._admits(group, refusal, remedy) else None

    def _nodes_to_add(self, group: Group, refusal: Refusal) -> Generator[None, None, Remedy | None]:
        """The smallest number of nodes like one of those that have no room."""
        if len(group.members) > MOST_MEMBERS:
            return None
        for part in refusal.groups:
            most = Remedy(remedies.ADD, node=part.nodes[0], count=len(group.members))
            yield
            if not self._admits(group, refusal, most):
                continue
            low, high = 1, most.count
            while low < high:
                middle = (low + high) // 2
                yield
                if self._admits(group, refusal, replace(most, count=middle)):
                    high = middle
                else:
                    low = middle + 1
            return replace(most, count=high)
        return None

    def _with_raises(self, group: Group, refusal: Refusal, remedy: Remedy) -> Remedy:
        """What has to be raised besides, so that the queue lets the group pass with this change."""
        with trial(self._fleet):
            changed = remedies.apply_to_group(self._fleet, group, refusal.uid, replace(remedy, raises=()))
            besides = quota_remedies.passing(self._fleet, changed)
        known = {(each.queue, each.gate, each.resource): each for each in remedy.raises}
        for each in besides:
            key = (each.queue, each.gate, each.resource)
            if key not in known or known[key].after < each.after:
                known[key] = each
        queues = self._fleet.accounts.tree.queues
        found = (
            each._replace(before=getattr(queues[each.queue].allowances[RESOURCES.index(each.resource)], each.gate))
            for each in known.values()
        )
        return replace(remedy, raises=tuple(found))


def _cheaper_than_quota(remedy: Remedy | None) -> bool:
    if remedy is None:
        return False
    simple = remedy.code is not None and explanation.is_simple(remedy.code, remedy.subject)
    return simple or remedy.kind in _OF_POD


def _about(group: Group, refusal: Refusal) -> Refusal:
    """The refusal may be that of another group of its class: as it is for the member of this one that asks the same."""
    alike = [member for member in group.members if wants_of(member) == refusal.wants]
    known = [member for member in group.members if member.uid == refusal.uid]
    member = (*known, *alike, *group.members)[0]
    return replace(refusal, uid=member.uid, pod=member.key)


class _Anybody:
    """Rules for a search for pods that a person could end: everybody may go who may be evicted at all."""

    moves_only = False
    allows_any = True

    def __init__(self, taker: str) -> None:
        self._taker = taker
        self.kind: Hashable = ("end", taker)

    def allows(self, group: RunningGroup) -> Extent:
        return Extent.NOTHING if group.key == self._taker else Extent.EVERYTHING

    def allows_loss(self, lost: Iterable[RunningPod], evicted: Iterable[RunningPod]) -> bool:  # noqa: ARG002
        return True
