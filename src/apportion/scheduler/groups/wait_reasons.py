"""Why a group waits, in the form of a PodGroup's status: reason, text, and the numbers of the queue that stops it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from apportion.apis import meta
from apportion.apis.custom_resources import pod_groups
from apportion.apis.custom_resources.pod_groups import QueueDetails, UnschedulableDetails, UnschedulableReason
from apportion.apis.identities import QueueName
from apportion.apis.request import Request
from apportion.core import group_turns
from apportion.core.explanations import messages
from apportion.core.queues import gates
from apportion.core.queues.amounts import NOTHING, Amounts
from apportion.core.queues.entitlements import Entitlements
from apportion.core.queues.tree import Queue
from apportion.core.queues.turns import Turn
from apportion.core.reasons import Code
from apportion.core.refusals import Refusal
from apportion.scheduler.queue_statuses import resource_list
from apportion.view.view import View

_REASONS = {
    Code.NO_QUEUE: pod_groups.QUEUE_DOES_NOT_EXIST,
    Code.OVER_LIMIT: pod_groups.OVER_LIMIT,
    Code.OVER_QUOTA: pod_groups.NON_PREEMPTIBLE_OVER_QUOTA,
}


class WaitReasons:
    def __init__(self, view: View, entitlements: Entitlements) -> None:
        self._view, self._entitlements = view, entitlements

    def of(self, refusal: Refusal, members: Sequence[Request]) -> dict[str, Any]:
        """`members` are the pods of the group that wait."""
        reason = _REASONS.get(refusal.code, pod_groups.POD_SCHEDULING_ERRORS)
        found = UnschedulableReason(reason=reason, message=messages.of(refusal, reader=members[0].namespace))
        if refusal.code in {Code.OVER_LIMIT, Code.OVER_QUOTA}:
            found.details = UnschedulableDetails(queue_details=self._details(members))
        return meta.to_wire(found)

    def _details(self, members: Sequence[Request]) -> QueueDetails | None:
        """Of the queue that stops the group, which can be any above its own; of its own if none does any more."""
        fleet, first = self._view.fleet, members[0]
        turn = group_turns.next_turn(fleet, members)
        if not isinstance(turn, Turn):
            return None
        closed = gates.against(fleet.accounts, first.queue, turn.need, fixed=not first.preemptible)
        name = closed.queue if closed is not None else first.queue
        queue = fleet.accounts.tree.queues.get(name)
        if queue is None:
            return None
        return QueueDetails(
            name=name,
            queue_requested_resources=resource_list(self._requested(name)),
            queue_deserved_resources=_stated(queue, "quota"),
            queue_allocated_resources=resource_list(fleet.accounts.used(name)),
            queue_allocated_non_preemptible_resources=resource_list(fleet.accounts.fixed(name)),
            queue_resource_limits=_stated(queue, "limit"),
            pod_group_requested_resources=resource_list(turn.need),
            pod_group_requested_non_preemptible_resources=resource_list(NOTHING if first.preemptible else turn.need),
        )

    def _requested(self, name: QueueName) -> Amounts:
        """By the queue and all below it."""
        tree = self._view.fleet.accounts.tree
        leaves = self._entitlements.demand.of_queues().items()
        return _sum(amounts for leaf, amounts in leaves if name in tree.path(leaf))


def _sum(amounts: Iterable[Amounts]) -> Amounts:
    total = NOTHING
    for each in amounts:
        total = total.plus(each)
    return total


def _stated(queue: Queue, what: str) -> dict[str, str]:
    """Quotas or limits; a resource that is unlimited is left out."""
    stated = Amounts(*(getattr(allowance, what) for allowance in queue.allowances))
    names = resource_list(stated)
    return {name: text for (name, text), amount in zip(names.items(), stated, strict=True) if amount >= 0}
