"""Pods that wait for a node: ready to be decided, parked until something changes, or under way.

The unit is a group of pods (of one, until gangs come); which group comes first is the business of one
function, `by_priority_and_age`, that can be exchanged.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

import msgspec

from apportion.apis.request import Request
from apportion.core.refusals import Refusal
from apportion.scheduler.changes import Changes
from apportion.view.changes import Change

FIRST_RETRY_SECONDS = 0.2
LONGEST_RETRY_SECONDS = 30.0
LOOK_AGAIN_SECONDS = 300.0  # a safety net: a parked pod is looked at now and then without any reason


class Stage(Enum):
    READY = auto()
    PARKED = auto()
    UNDER_WAY = auto()


@dataclass
class Waiting:
    """One pod that waits."""

    request: Request
    since: float
    stage: Stage = Stage.READY
    refusal: Refusal | None = None
    attempts: int = 0
    not_before: float = 0.0

    @property
    def uid(self) -> str:
        return self.request.uid

    @cached_property
    def wish(self) -> bytes:
        """What it asks for, apart from who asks: equal for pods that can be decided alike."""
        anybody = msgspec.structs.replace(self.request, uid="", name="", created="", owner=None)
        return msgspec.json.encode(anybody)


Order = Callable[[Iterable[Waiting]], list[Waiting]]


def by_priority_and_age(waiting: Iterable[Waiting]) -> list[Waiting]:
    """The highest priority first, then the oldest pod; names settle the rest."""
    return sorted(
        waiting,
        key=lambda entry: (
            -entry.request.priority,
            entry.request.created,
            entry.request.namespace,
            entry.request.name,
            entry.uid,
        ),
    )


class Backlog:
    """All pods of ours that have no node."""

    def __init__(self, now: Callable[[], float], *, order: Order = by_priority_and_age) -> None:
        self._now = now
        self._order = order
        self._entries: dict[str, Waiting] = {}
        self._ready: set[str] = set()
        self._under_way: set[str] = set()
        self._timers: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}  # of several times of a pod the earliest counts

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, uid: str) -> Waiting | None:
        return self._entries.get(uid)

    def count(self, stage: Stage) -> int:
        known = {Stage.READY: len(self._ready), Stage.UNDER_WAY: len(self._under_way)}
        return known[stage] if stage in known else len(self._entries) - sum(known.values())

    @property
    def busy(self) -> bool:
        """Plans are being committed."""
        return bool(self._under_way)

    # From the cluster

    def offer(self, request: Request) -> bool:
        """A pod wants a place; True if that is news (a pod that only reports its state again is none)."""
        entry = self._entries.get(request.uid)
        if entry is None:
            entry = self._entries[request.uid] = Waiting(request, self._now())
        elif entry.request == request:
            return False
        entry.request = request
        entry.__dict__.pop("wish", None)
        if entry.stage is not Stage.UNDER_WAY:
            self._make_ready(entry)
        return True

    def withdraw(self, uid: str) -> bool:
        """A pod that is bound, gone, gated or somebody else's."""
        self._ready.discard(uid)
        self._under_way.discard(uid)
        return self._entries.pop(uid, None) is not None

    # From decisions

    def take(self, changes: Iterable[Change]) -> list[Waiting]:
        """The pods to decide about now, in order: new ones, those whose time has come, those woken."""
        self._pass_time()
        happened = Changes(changes)
        if happened and self.count(Stage.PARKED):
            for entry in self._entries.values():
                if entry.stage is Stage.PARKED and entry.refusal is not None and happened.can_help(entry.refusal):
                    self._make_ready(entry)
        now = self._now()
        taken = [self._entries[uid] for uid in self._ready if self._entries[uid].not_before <= now]
        self._ready.difference_update(entry.uid for entry in taken)
        return self._order(taken)

    def start(self, entry: Waiting) -> None:
        """Its plan is being committed."""
        entry.stage, entry.refusal = Stage.UNDER_WAY, None
        self._ready.discard(entry.uid)  # it may have been offered anew while the round took breath
        self._under_way.add(entry.uid)

    def park(self, entry: Waiting, refusal: Refusal | None) -> None:
        """It waits for a change (without a refusal: for a change of the pod itself)."""
        entry.stage, entry.refusal = Stage.PARKED, refusal
        self._ready.discard(entry.uid)
        self._under_way.discard(entry.uid)
        if refusal is not None:
            self._at(self._now() + LOOK_AGAIN_SECONDS, entry.uid)

    def retry(self, uid: str, *, failed: bool = True) -> None:
        """Its plan was not carried out: decide anew, later and later after each failure."""
        entry = self._entries.get(uid)
        if entry is None:
            return
        entry.attempts = entry.attempts + 1 if failed else 0
        delay = min(FIRST_RETRY_SECONDS * 2.0 ** (entry.attempts - 1), LONGEST_RETRY_SECONDS) if failed else 0.0
        entry.not_before = self._now() + delay
        self._make_ready(entry)
        if failed:
            self._at(entry.not_before, uid)

    def next_time(self) -> float | None:
        """When a pod is due by the clock alone."""
        while self._timers and self._timers[0][1] not in self._entries:
            self._due.pop(heapq.heappop(self._timers)[1], None)
        return self._timers[0][0] if self._timers else None

    def _at(self, moment: float, uid: str) -> None:
        if moment < self._due.get(uid, math.inf):
            self._due[uid] = moment
            heapq.heappush(self._timers, (moment, uid))

    def _pass_time(self) -> None:
        now = self._now()
        while self._timers and self._timers[0][0] <= now:
            moment, uid = heapq.heappop(self._timers)
            if self._due.get(uid) == moment:
                del self._due[uid]
            entry = self._entries.get(uid)
            if entry is not None and entry.stage is Stage.PARKED and entry.refusal is not None:
                self._make_ready(entry)

    def _make_ready(self, entry: Waiting) -> None:
        entry.stage = Stage.READY
        self._under_way.discard(entry.uid)
        self._ready.add(entry.uid)
