"""What the status of a PodGroup has to say: how many pods run, what they hold, why the others wait, and since when the
group runs without its minimum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from apportion.apis import meta
from apportion.apis.custom_resources import pod_groups
from apportion.apis.custom_resources.pod_groups import BELOW_MINIMUM, PodGroup
from apportion.apis.identities import PodUID
from apportion.apis.pods import Pod
from apportion.apis.request import Request
from apportion.cluster import clock
from apportion.core import gangs, group_turns
from apportion.core.evictions import stale_groups
from apportion.core.queues.amounts import NOTHING
from apportion.core.reasons import Layer
from apportion.core.refusals import Refusal
from apportion.scheduler.groups import group_pods
from apportion.scheduler.groups.group_pods import GroupPods
from apportion.scheduler.groups.wait_reasons import WaitReasons
from apportion.scheduler.queue_statuses import resource_list
from apportion.view.view import View

SETTLE_SECONDS = 2  # below the minimum, until that is told: pods of a group are often deleted one after the other
NOT_READY, UNSCHEDULABLE = "NotReady", "Unschedulable"

Json = dict[str, Any]


class GroupEvent(NamedTuple):
    reason: str
    text: str


class Content(NamedTuple):
    """`events` belong to it. `unsettled`: it has to be worked out again, even if nothing changes."""

    status: Json
    events: tuple[GroupEvent, ...]
    unsettled: bool


class StatusContent:
    """`today` is the time in seconds since 1970. `grace`: a group that runs without its minimum for so many seconds is
    evicted; -1: it is not."""

    def __init__(
        self, view: View, pods: GroupPods, reasons: WaitReasons, *, grace: int, today: Callable[[], float]
    ) -> None:
        self._view, self._pods, self._reasons = view, pods, reasons
        self._grace, self._today = grace, today
        self._below_since: dict[str, int] = {}

    def forget(self, key: str) -> None:
        self._below_since.pop(key, None)

    def of(self, group: PodGroup, refusal: Refusal | None) -> Content:
        """`refusal` is why the group waits, None if it does not wait or that is not known."""
        key = group_pods.key_of(group)
        pods = self._pods.of(key)
        phases = Counter(pod.status.phase or pod_groups.PENDING for pod in pods)
        below = self._below(key, phases)
        events: list[GroupEvent] = []
        waits = self._waits(group, pods, refusal, events)
        conditions, unsettled = self._conditions(key, group, below, events)
        status = {
            "phase": _phase(phases, below=below is not None),
            "conditions": conditions,
            "schedulingConditions": waits,
            "resourcesStatus": self._resources(pods),
            "pending": phases[pod_groups.PENDING],
            "running": phases[pod_groups.RUNNING],
            "succeeded": phases[pod_groups.SUCCEEDED],
            "failed": phases[pod_groups.FAILED],
        }
        return Content(status, tuple(events), unsettled)

    # The minimum

    def _below(self, key: str, phases: Counter[str]) -> str | None:
        """How many pods run and how many should; None if enough do. A group that begins to finish is not below."""
        fleet = self._view.fleet
        gang = fleet.gangs.get(key)
        left = stale_groups.below_minimum(fleet, key) if gang is not None else []
        if gang is None or not left or phases[pod_groups.SUCCEEDED]:
            self.forget(key)
            return None
        self._below_since.setdefault(key, int(self._today()))
        return stale_groups.lacking(gang, left)

    def _conditions(
        self, key: str, group: PodGroup, below: str | None, events: list[GroupEvent]
    ) -> tuple[list[Json], bool]:
        others = [meta.to_wire(each) for each in group.status.conditions if each.type != BELOW_MINIMUM]
        known = pod_groups.condition(group, BELOW_MINIMUM)
        kept = [meta.to_wire(known)] if known is not None else []
        was = known is not None and known.status == "True"
        if below is None:
            return [*others, *([_condition("False", "MinimumRuns", "", clock.timestamp())] if was else kept)], False
        since = self._below_since[key]
        if known is not None and was:
            return [*others, _condition("True", "PodsMissing", below, known.last_transition_time)], False
        if self._today() < since + SETTLE_SECONDS:
            return [*others, *kept], True
        then = f"; it is evicted if this lasts for {self._grace} s" if self._grace >= 0 else ""
        events.append(GroupEvent(NOT_READY, f"the group runs without its minimum: {below}{then}"))
        return [*others, _condition("True", "PodsMissing", below, clock.timestamp_of(since))], False

    # Who waits

    def _waits(self, group: PodGroup, pods: list[Pod], refusal: Refusal | None, events: list[GroupEvent]) -> list[Json]:
        before = [meta.to_wire(each) for each in group.status.scheduling_conditions]
        waiting = (request for pod in pods if (request := self._waiting(pod.uid)) is not None)
        members = sorted(waiting, key=gangs.age)
        if not members:
            return []
        reason = self._reasons.of(refusal, members) if refusal is not None else self._problem(members)
        if reason is None:
            return before
        in_gang = refusal is not None and refusal.layer is Layer.GANG
        events.append(GroupEvent(NOT_READY if in_gang else UNSCHEDULABLE, reason["message"]))
        last = before[0] if before else {}
        if last.get("reasons") == [reason] and last.get("status") == "True":
            return before
        return [_scheduling_condition(reason, str(last.get("transitionID", "")))]

    def _problem(self, members: list[Request]) -> Json | None:
        """What is wrong with the group or its pods, so that nothing can be decided about them."""
        for member in members:
            waiting = self._view.waiting.get(member.uid)
            if waiting is not None and waiting.reading.problem is not None:
                return {"reason": pod_groups.POD_SCHEDULING_ERRORS, "message": str(waiting.reading.problem)}
        return None

    def _waiting(self, uid: PodUID) -> Request | None:
        waiting = self._view.waiting.get(uid)
        return waiting.reading.request if waiting is not None else None

    # What it holds

    def _resources(self, pods: list[Pod]) -> Json:
        accounts = self._view.fleet.accounts
        held = fixed = asked = NOTHING
        for pod in pods:
            charge, request = accounts.charge(pod.uid), self._waiting(pod.uid)
            if charge is not None:
                held = held.plus(charge.amounts)
                fixed = fixed.plus(charge.amounts) if charge.fixed else fixed
            elif request is not None:
                asked = asked.plus(group_turns.wanted(self._view.fleet, request))
        return {
            "allocated": resource_list(held),
            "allocatedNonPreemptible": resource_list(fixed),
            "requested": resource_list(held.plus(asked)),
        }


def _phase(phases: Counter[str], *, below: bool) -> str:
    if phases[pod_groups.RUNNING]:
        return pod_groups.UNKNOWN if below else pod_groups.RUNNING
    if phases[pod_groups.PENDING] or not phases:
        return pod_groups.PENDING
    return pod_groups.FAILED if phases[pod_groups.FAILED] else pod_groups.SUCCEEDED


def _condition(status: str, reason: str, message: str, since: str) -> Json:
    return {
        "type": BELOW_MINIMUM,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
        "transitionID": "",
    }


def _scheduling_condition(reason: Json, last_number: str) -> Json:
    return {
        "type": pod_groups.UNSCHEDULABLE_ON_NODE_POOL,
        "nodePool": pod_groups.DEFAULT_NODE_POOL,
        "status": "True",
        "reason": reason["reason"],
        "message": reason["message"],
        "reasons": [reason],
        "transitionID": str(int(last_number) + 1) if last_number.isdecimal() else "1",
        "lastTransitionTime": clock.timestamp(),
    }
