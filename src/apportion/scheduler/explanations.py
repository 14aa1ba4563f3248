"""Explains to pending groups why they have no place, without delaying groups that have one.

Groups that ask for the same are explained once, and an explanation is kept: when it is needed again only nodes that
have changed are looked at, and not more often than every second. The work is cut into steps of a few milliseconds and
done between cycles. Until a group has its explanation it is parked so that any change can wake it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass, field

from apportion.core import refusals
from apportion.core.explanations import messages
from apportion.core.explanations.group_explanation import GroupExplanation
from apportion.core.explanations.queue_advice import QueueAdvice
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.policies import Policy
from apportion.core.refusals import Refusal
from apportion.scheduler import metrics
from apportion.scheduler.backlog import Backlog, Stage, Waiting
from apportion.scheduler.events import Reporter

PAUSE_SECONDS = 1.0  # between two explanations of one class
STOPPED_PAUSE_SECONDS = 10.0  # the same if a queue stops it: these are not kept, and pods are not told more often
_TOLD_PER_STEP = 20
_MOST_KEPT = 32
_MOST_TRIED = 16  # queues of one class for which changes of quotas are tried out


@dataclass(eq=False)
class _Task:
    """The explanation of one class. `parked` is what its groups are parked with until it is there."""

    key: Hashable
    group: Group
    parked: Refusal
    not_before: float
    stopped: bool = False  # by its queue
    groups: dict[str, Group] = field(default_factory=dict)  # of its entries: the pods whose turn it was
    steps: Generator[None, None, None] | None = None


@dataclass
class _Kept:
    """An explanation, and when it was finished."""

    explanation: GroupExplanation
    at: float = float("-inf")


@dataclass
class _Told:
    """An explanation in words, by the namespace in which it is read."""

    refusal: Refusal
    at: float
    texts: dict[str, str] = field(default_factory=dict)


class Explanations:
    """Add groups that have no place, and `work` whenever there is time."""

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy,
        backlog: Backlog,
        reporter: Reporter,
        now: Callable[[], float],
        advice: QueueAdvice | None = None,
    ) -> None:
        self._now = now
        self._advice = advice
        self._fleet = fleet
        self._policy = policy
        self._backlog = backlog
        self._reporter = reporter
        self._open: dict[Hashable, _Task] = {}  # still worked out: later groups can join
        self._queue: list[_Task] = []
        self._stopped: dict[Hashable, _Told] = {}  # what those that their queue stops were told, the oldest first
        self._kept: dict[Hashable, _Kept] = {}  # the one that was needed longest ago first

    @property
    def due(self) -> float | None:
        """When there is something to do; None if there is nothing."""
        return min((task.not_before for task in self._queue), default=None)

    def add(self, entry: Waiting, group: Group, stopped: Refusal | None = None) -> None:
        """These pods of it have no place, or its queue has `stopped` them: park it, and explain that when there is
        time."""
        key = entry.class_on(self._fleet, group)
        if stopped is not None:
            first = group.members[0]
            key = (stopped.layer, key, first.queue, first.preemptible)
        found = self._open.get(key)
        if found is None:
            kept = self._kept.get(key)
            not_before = kept.at + PAUSE_SECONDS if kept is not None else 0.0
            if key in self._stopped:
                not_before = self._stopped[key].at + STOPPED_PAUSE_SECONDS
            parked = stopped or refusals.unexplained(group.members[0])
            found = _Task(key, group, parked, not_before, stopped is not None)
            self._open[key] = found
            self._queue.append(found)
        found.groups[entry.key] = group
        self._backlog.park(entry, found.parked, key)
        known = self._stopped.get(key)
        if known is not None and known.at + STOPPED_PAUSE_SECONDS > self._now():
            self._tell(entry, known)  # it may be new; numbers that changed follow later

    def volumes_changed(self) -> None:
        """What was found out about volume claims no longer holds: begin anew."""
        for task in self._open.values():
            if _has_volumes(task.group):
                task.steps = None
        for kept in self._kept.values():
            if _has_volumes(kept.explanation.group):
                kept.explanation = self._begun(kept.explanation.group)

    def work(self, seconds: float) -> None:
        """Some steps; not many more than fit into that time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            now = self._now()
            task = next((task for task in self._queue if task.not_before <= now), None)
            if task is None:
                return
            if task.steps is None:
                task.steps = self._explain(task)
            try:
                next(task.steps)
            except StopIteration:
                self._queue.remove(task)

    def _explain(self, task: _Task) -> Generator[None, None, None]:
        refusal = yield from self._refusal(task)
        del self._open[task.key]  # who comes from now on saw a later fleet
        if refusal is None or self._backlog.refusal_of(task.key) is not task.parked:
            return
        texts: dict[Hashable, str] = {}  # pods of a class can be in several namespaces and queues
        for number, entry in enumerate(self._backlog.explain(task.key, refusal), 1):
            group = task.groups.get(entry.key, entry.group)
            first = group.members[0]
            kind = (first.namespace, first.queue, group.priority, first.preemptible)
            text = texts.get(kind)
            if text is None:
                completed = yield from self._completed(task, group, refusal, tried=len(texts) < _MOST_TRIED)
                text = texts[kind] = messages.of(completed, reader=first.namespace)
                if len(texts) == 1 and self._backlog.refusal_of(task.key) is refusal:
                    self._backlog.explain(task.key, completed)  # its layer: a gang can be too large for the cluster
            if entry.stage is Stage.PARKED and entry.alike == task.key and self._backlog.get(entry.key) is entry:
                for member in entry.group.members:
                    self._reporter.waits(member, text)
            if number % _TOLD_PER_STEP == 0:
                yield

    def _completed(self, task: _Task, group: Group, refusal: Refusal, *, tried: bool) -> Generator[None, None, Refusal]:
        """With what is to be said about the queue of this group."""
        if self._advice is None or task.stopped:
            return refusal
        return (yield from self._advice.without_place(group, refusal, tried=tried))

    def _refusal(self, task: _Task) -> Generator[None, None, Refusal | None]:
        """None if nobody waits for it any more, or if there is a place after all: then its groups are woken anyway."""
        kept = None if task.stopped else self._explanation(task)
        steps = self._steps(task, kept)
        while True:
            if self._backlog.refusal_of(task.key) is not task.parked:
                return None
            try:
                next(steps)
            except StopIteration as end:
                refusal: Refusal | None = end.value
                if kept is not None:
                    kept.at = self._now()
                elif refusal is not None:
                    self._note_stopped(task.key, refusal)
                return refusal
            yield

    def _steps(self, task: _Task, kept: _Kept | None) -> Generator[None, None, Refusal | None]:
        if kept is not None:
            return kept.explanation.steps()
        assert self._advice is not None
        first = self._backlog.first_of(task.key)
        group = task.group if first is None else task.groups.get(first.key, task.group)
        metrics.EXPLANATIONS.inc()
        return self._advice.stopped(group)

    def _note_stopped(self, key: Hashable, refusal: Refusal) -> None:
        now = self._now()
        self._stopped.pop(key, None)
        self._stopped[key] = _Told(refusal, now)
        while (first := next(iter(self._stopped))) != key and self._stopped[first].at + STOPPED_PAUSE_SECONDS <= now:
            del self._stopped[first]

    def _tell(self, entry: Waiting, told: _Told) -> None:
        for member in entry.group.members:
            reader = member.namespace
            text = told.texts.get(reader)
            if text is None:
                text = told.texts[reader] = messages.of(told.refusal, reader=reader)
            self._reporter.waits(member, text)

    def _explanation(self, task: _Task) -> _Kept:
        found = self._kept.pop(task.key, None)
        first = self._backlog.first_of(task.key)
        if first is not None and self._speaks_no_longer(task.group):
            task.group = task.groups.get(first.key, first.group)
            found = found if found is not None and found.explanation.group is task.group else None
        if found is not None and self._fleet.reserves_for(found.explanation.group.key):
            found = None
        if found is None:
            metrics.EXPLANATIONS.inc()
            found = _Kept(self._begun(task.group))
        self._kept[task.key] = found
        if len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return found

    def _speaks_no_longer(self, group: Group) -> bool:
        """For the others of its class: its own volume claims may have changed, or a place is reserved for it by now."""
        return _has_own_claims(group) or self._fleet.reserves_for(group.key)

    def _begun(self, group: Group) -> GroupExplanation:
        return GroupExplanation(self._fleet, group, self._policy)


def _has_own_claims(group: Group) -> bool:
    return any(member.rules.ephemeral for member in group.members)


def _has_volumes(group: Group) -> bool:
    return any(member.has_volume_claims for member in group.members)
