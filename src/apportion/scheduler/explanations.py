"""Telling groups that have no place why, without delaying anybody who has one.

Groups that ask for the same are explained once. The work is cut into steps of a few milliseconds and done between
rounds of decisions. Until a group has its explanation it is parked so that any change can wake it.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Hashable
from dataclasses import dataclass, field

from apportion.core import cycle, explain, refusals, sentences
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.policies import Policy
from apportion.core.refusals import Refusal
from apportion.scheduler import metrics
from apportion.scheduler.backlog import Backlog, Stage, Waiting
from apportion.scheduler.events import Reporter

_TOLD_PER_STEP = 20


@dataclass(eq=False)
class _Explanation:
    """One for a class. `parked` is what its groups are parked with until it is there."""

    key: Hashable
    group: Group
    parked: Refusal
    entries: dict[str, Waiting] = field(default_factory=dict)
    steps: Generator[None, None, None] | None = None

    def concerns(self, entry: Waiting) -> bool:
        return entry.stage is Stage.PARKED and entry.refusal is self.parked


class Explanations:
    """Add groups that have no place, and `work` whenever there is time."""

    def __init__(self, fleet: Fleet, policy: Policy, backlog: Backlog, reporter: Reporter) -> None:
        self._fleet = fleet
        self._policy = policy
        self._backlog = backlog
        self._reporter = reporter
        self._open: dict[Hashable, _Explanation] = {}  # still worked out: later groups can join
        self._queue: list[_Explanation] = []

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, entry: Waiting) -> None:
        """It has no place: park it, and explain that when there is time."""
        key = entry.class_on(self._fleet)
        found = self._open.get(key)
        if found is None:
            found = _Explanation(key, entry.group, refusals.unexplained(entry.group.members[0]))
            self._open[key] = found
            self._queue.append(found)
        found.entries[entry.key] = entry
        self._backlog.park(entry, found.parked)

    def volumes_changed(self) -> None:
        """What was found out about volume claims no longer holds: begin anew."""
        for each in self._open.values():
            if any(member.rules.claims for member in each.group.members):
                each.steps = None

    def work(self, seconds: float) -> None:
        """Some steps; not many more than fit into that time."""
        until = time.monotonic() + seconds
        while self._queue:
            first = self._queue[0]
            if first.steps is None:
                first.steps = self._explain(first)
            try:
                next(first.steps)
            except StopIteration:
                self._queue.pop(0)
            if time.monotonic() >= until:
                return

    def _explain(self, explanation: _Explanation) -> Generator[None, None, None]:
        refusal = yield from self._refusal(explanation)
        del self._open[explanation.key]  # who comes from now on saw a later fleet
        if refusal is None:
            return
        metrics.EXPLANATIONS.inc()
        text = sentences.of(refusal)
        for number, entry in enumerate(explanation.entries.values(), 1):
            if self._backlog.get(entry.key) is entry and explanation.concerns(entry):
                self._backlog.park(entry, refusal)
                for member in entry.group.members:
                    self._reporter.waits(member, text)
            if number % _TOLD_PER_STEP == 0:
                yield

    def _refusal(self, explanation: _Explanation) -> Generator[None, None, Refusal | None]:
        """None if nobody waits for it any more, or if there is a place after all: then its groups are woken anyway."""
        group = explanation.group
        if len(group.members) > 1:
            yield
            mark = self._fleet.checkpoint()
            outcome = cycle.decide(self._fleet, group, self._policy)
            self._fleet.rollback(mark)
            return outcome if isinstance(outcome, Refusal) else None
        steps = explain.steps(self._fleet, group.members[0], self._policy)
        while True:
            if not any(explanation.concerns(entry) for entry in explanation.entries.values()):
                return None
            try:
                next(steps)
            except StopIteration as end:
                refusal: Refusal = end.value
                return refusal
            yield
