"""Groups of pending pods: ready to be decided, parked until something changes, or being bound.

Parked groups that are decided alike are woken as one: the first of them is taken, and the others only if it turns out
not to speak for them (`wake_alike`). So a thousand equal pods that wait cost one decision.

Whose turn it is among those that are taken is decided by the queues (`core.queues.turns`).
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from operator import attrgetter

from apportion.apis.identities import PodUID, QueueName
from apportion.apis.request import Request
from apportion.core import equivalence, gangs
from apportion.core.cluster_changes import Change
from apportion.core.fleet import Fleet
from apportion.core.groups import Group, key_of
from apportion.core.reasons import Layer
from apportion.core.refusals import Refusal
from apportion.scheduler.helpful_changes import HelpfulChanges

FIRST_RETRY_SECONDS = 0.2
LONGEST_RETRY_SECONDS = 30.0
REFRESH_SECONDS = 60.0  # how long a reason may be out of date: a change that helps nobody can alter what is told
LOOK_AGAIN_SECONDS = 300.0  # a safety net: a parked pod is looked at now and then without any reason


Position = tuple[int, str, str, str, str]


class Stage(Enum):
    READY = auto()
    PARKED = auto()
    UNDER_WAY = auto()


@dataclass(eq=False)
class Waiting:
    """One group that waits. `alike` are those that it is or was parked with."""

    key: str
    since: float
    stage: Stage = Stage.READY
    alike: Hashable = None
    under_way: int = 0  # statements that are being written
    attempts: int = 0
    not_before: float = 0.0
    _members: dict[PodUID, Request] = field(default_factory=dict)
    _group: Group | None = None
    _class: tuple[Group, frozenset[str], bool, Hashable] | None = None

    @property
    def group(self) -> Group:
        """All of its pods that wait, the oldest first."""
        if self._group is None:
            self._group = Group.of(*sorted(self._members.values(), key=gangs.age), key=self.key)
        return self._group

    @property
    def order(self) -> Position:
        """The highest priority first, then the oldest; names settle the rest."""
        group = self.group
        first = group.members[0]
        return -group.priority, first.created, first.namespace, first.name, group.key

    @property
    def queue(self) -> QueueName:
        return self.group.members[0].queue

    def include(self, request: Request) -> bool:
        """A pod of it; True if it is new or its request has changed."""
        if self._members.get(request.uid) == request:
            return False
        self._members[request.uid] = request
        self._group = None
        return True

    def leave_out(self, uid: PodUID) -> bool:
        """True if others are left."""
        del self._members[uid]
        self._group = None
        return bool(self._members)

    def class_on(self, fleet: Fleet, group: Group) -> Hashable:
        """Equal for pods (`group`: those whose turn it is) that are decided alike on this fleet, and only as long as
        the same labels count on it."""
        if equivalence.alone(fleet, group):
            return self.key
        known = self._class
        apart = bool(fleet.apart)
        if any(member.rules.ephemeral for member in group.members):
            return fleet.apart_labels, equivalence.group_class(fleet, group)  # their claims change on their own
        if (
            known is None
            or known[0].members != group.members
            or known[1] is not fleet.apart_labels
            or known[2] != apart
        ):
            found = (fleet.apart_labels, equivalence.group_class(fleet, group))
            known = self._class = (group, fleet.apart_labels, apart, found)
        return known[3]


@dataclass
class _Parked:
    """Groups that are decided alike, and why the one that was tried last has no place."""

    refusal: Refusal
    entries: dict[str, Waiting] = field(default_factory=dict)


class Backlog:
    """All groups of ours with pods that have no node."""

    def __init__(self, now: Callable[[], float], part: Callable[[], float] | None = None) -> None:
        """`part` of a delay is waited. It is left to chance, so that two leaders, each of whom made the other one's
        statement fail, do not try again at the same times."""
        self._now, self._part = now, part or _half_or_more
        self._entries: dict[str, Waiting] = {}
        self._groups: dict[PodUID, str] = {}  # pod -> its group
        self._ready: set[str] = set()
        self._parked: dict[Hashable, _Parked] = {}
        self._under_way: set[str] = set()
        self._timers: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}  # of several times of a group the earliest counts
        self._listeners: list[Callable[[PodUID, Request | None], None]] = []
        self._refresh_at = math.inf  # when every parked group is looked at again, because something changed

    def __len__(self) -> int:
        """Pods that wait."""
        return len(self._groups)

    def get(self, key: str) -> Waiting | None:
        return self._entries.get(key)

    def count(self, stage: Stage) -> int:
        known = {Stage.READY: len(self._ready), Stage.UNDER_WAY: len(self._under_way)}
        return known[stage] if stage in known else len(self._entries) - sum(known.values())

    def by_layer(self) -> Counter[Layer]:
        """Pods that are parked, by the layer that blocks them."""
        found: Counter[Layer] = Counter()
        for parked in self._parked.values():
            found[parked.refusal.layer] += sum(len(entry.group.members) for entry in parked.entries.values())
        return found

    @property
    def busy(self) -> bool:
        """Statements are being committed."""
        return bool(self._under_way)

    # From the cluster

    def offer(self, request: Request) -> bool:
        """A pod without a node; True if it is new or its request has changed."""
        key = key_of(request)
        if self._groups.get(request.uid, key) != key:
            self.withdraw(request.uid)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Waiting(key, self._now())
        if not entry.include(request):
            return False
        self._park_alone(entry)
        self._groups[request.uid] = key
        if entry.stage is not Stage.UNDER_WAY:
            self._make_ready(entry)
        for listener in self._listeners:
            listener(request.uid, request)
        return True

    def on_change(self, listener: Callable[[PodUID, Request | None], None]) -> None:
        """Call `listener(uid, request)` when a pod begins to wait or asks for something else; None: no longer."""
        self._listeners.append(listener)

    def withdraw(self, uid: PodUID) -> bool:
        """A pod that is bound, gone, gated or of another scheduler."""
        key = self._groups.pop(uid, None)
        if key is None:
            return False
        for listener in self._listeners:
            listener(uid, None)
        entry = self._entries[key]
        if entry.leave_out(uid):
            self._park_alone(entry)
            return True
        self._unpark(entry)
        self._ready.discard(key)
        self._under_way.discard(key)
        del self._entries[key]
        return True

    # From decisions

    def take(self, changes: Iterable[Change]) -> list[Waiting]:
        """The groups to decide about now, in order: new ones, those whose time has come, those woken."""
        self._pass_time()
        happened = HelpfulChanges(changes)
        if happened and self._parked:
            self._refresh_at = min(self._refresh_at, self._now() + REFRESH_SECONDS)
            for parked in list(self._parked.values()):
                if happened.can_help(parked.refusal):
                    self._wake_first(parked)
        for uid in happened.pods:
            if uid in self._groups:
                self._wake_alone(self._entries[self._groups[uid]])
        now = self._now()
        taken = [self._entries[key] for key in self._ready if self._entries[key].not_before <= now]
        self._ready.difference_update(entry.key for entry in taken)
        return sorted(taken, key=_order)

    def wake_alike(self, entry: Waiting) -> list[Waiting]:
        """This group, taken for those that are like it, does not speak for them: they are taken too."""
        parked = self._parked.pop(entry.alike, None)
        entry.alike = None
        if parked is None:
            return []
        for other in parked.entries.values():
            other.stage, other.alike = Stage.READY, None
        return list(parked.entries.values())

    def wake_parked(self, alike: Hashable) -> None:
        """Those that are parked under `alike` have a turn in the next cycle."""
        parked = self._parked.get(alike)
        for entry in list(parked.entries.values()) if parked is not None else ():
            self._make_ready(entry)

    def start(self, entry: Waiting) -> None:
        """A statement of it is being committed."""
        entry.under_way += 1
        entry.stage = Stage.UNDER_WAY
        self._ready.discard(entry.key)  # it may have been offered anew while others were decided about
        self._under_way.add(entry.key)

    def finished(self, entry: Waiting, *, failed: bool, bound: bool = True) -> None:
        """A statement of it was carried out, or not. If it was the last, the pods that are left have their turn.

        If the pods are not `bound` yet, because the binder does that, this attempt can still fail."""
        entry.under_way -= 1
        if self._entries.get(entry.key) is not entry or entry.under_way:
            return
        if failed:
            self.retry(entry.key)
        else:
            entry.attempts = 0 if bound else entry.attempts
            self._make_ready(entry)

    def park(self, entry: Waiting, refusal: Refusal | None, alike: Hashable = None) -> None:
        """It waits for a change (without a refusal: for a change of its pods themselves).

        The refusal holds from now on for all that are parked under the same `alike`.
        """
        self._unpark(entry)
        entry.stage, entry.alike = Stage.PARKED, alike or entry.key
        self._ready.discard(entry.key)
        self._under_way.discard(entry.key)
        if refusal is not None:
            parked = self._parked.setdefault(entry.alike, _Parked(refusal))
            parked.refusal = refusal
            parked.entries[entry.key] = entry
            self._at(self._now() + LOOK_AGAIN_SECONDS, entry.key)

    def refusal_of(self, alike: Hashable) -> Refusal | None:
        """Why those that are parked under `alike` have no place; None if nobody is."""
        parked = self._parked.get(alike)
        return parked.refusal if parked is not None else None

    def first_of(self, alike: Hashable) -> Waiting | None:
        """Who speaks for those that are parked under `alike`."""
        parked = self._parked.get(alike)
        return min(parked.entries.values(), key=_order) if parked is not None else None

    def explain(self, alike: Hashable, refusal: Refusal) -> list[Waiting]:
        """A refusal that says more than the one with which these are parked; for whom it holds."""
        parked = self._parked[alike]
        parked.refusal = refusal
        return list(parked.entries.values())

    def retry(self, key: str, *, failed: bool = True) -> None:
        """Its statement was not carried out: decide anew, later and later after each failure."""
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.attempts = entry.attempts + 1 if failed else 0
        delay = min(FIRST_RETRY_SECONDS * 2.0 ** (entry.attempts - 1), LONGEST_RETRY_SECONDS) if failed else 0.0
        entry.not_before = self._now() + delay * self._part()
        self._make_ready(entry)
        if failed:
            self._at(entry.not_before, key)

    def look_again(self, key: str, moment: float) -> None:
        """It was not decided about now; at that time it is, if it is still parked."""
        self._at(moment, key)

    def next_time(self) -> float | None:
        """When a group is due by the clock alone."""
        while self._timers and self._timers[0][1] not in self._entries:
            self._due.pop(heapq.heappop(self._timers)[1], None)
        if not self._entries:
            self._refresh_at = math.inf
        due = min(self._timers[0][0] if self._timers else math.inf, self._refresh_at)
        return due if due < math.inf else None

    def _at(self, moment: float, key: str) -> None:
        if moment < self._due.get(key, math.inf):
            self._due[key] = moment
            heapq.heappush(self._timers, (moment, key))

    def _pass_time(self) -> None:
        now = self._now()
        while self._timers and self._timers[0][0] <= now:
            moment, key = heapq.heappop(self._timers)
            if self._due.get(key) == moment:
                del self._due[key]
            if key in self._entries:
                self._wake(self._entries[key])
        if self._refresh_at <= now:
            self._refresh_at = math.inf
            for parked in list(self._parked.values()):
                self._wake_first(parked)

    def _wake(self, entry: Waiting) -> None:
        if entry.stage is Stage.PARKED and entry.alike in self._parked:
            self._make_ready(entry)

    def _wake_alone(self, entry: Waiting) -> None:
        """Something of its own has changed: it does not speak for those that it was parked with."""
        if entry.stage is Stage.PARKED and entry.alike in self._parked:
            self._make_ready(entry)
            entry.alike = None

    def _wake_first(self, parked: _Parked) -> None:
        """Of each queue, since the queues decide whose turn it is."""
        first: dict[QueueName, Waiting] = {}
        for entry in parked.entries.values():
            known = first.get(entry.queue)
            if known is None or entry.order < known.order:
                first[entry.queue] = entry
        for entry in first.values():
            self._make_ready(entry)

    def _park_alone(self, entry: Waiting) -> None:
        """Its pods have changed: whoever it was parked with is no longer like it."""
        refusal = self.refusal_of(entry.alike)
        if entry.stage is Stage.PARKED and refusal is not None:
            self.park(entry, refusal)

    def _unpark(self, entry: Waiting) -> None:
        parked = self._parked.get(entry.alike)
        if parked is None:
            return
        parked.entries.pop(entry.key, None)
        if not parked.entries:
            del self._parked[entry.alike]

    def _make_ready(self, entry: Waiting) -> None:
        self._unpark(entry)
        entry.stage = Stage.READY
        self._under_way.discard(entry.key)
        self._ready.add(entry.key)


_order = attrgetter("order")


def _half_or_more() -> float:
    return random.uniform(0.5, 1.0)  # noqa: S311  spreads retries
