"""A group that runs, as a victim: what may be taken of it, and in which order.

A group above its minimum can give single pods; at its minimum it goes as a whole. Victims are taken in the reverse
order of turns: from the queue with the lowest priority, of the lowest priority, single pods before whole groups, the
newest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from apportion.apis.identities import NodeName, PodUID, QueueName
from apportion.apis.request import Request
from apportion.core.groups import Gang
from apportion.core.queues.amounts import NOTHING, Amounts

Birth = tuple[str, str, str, str, str]


class Level(NamedTuple):
    """How much it matters that somebody keeps running: first the priority of the queue, then that of the group."""

    queue: int
    group: int


@dataclass(eq=False, slots=True)
class RunningPod:
    """One pod that could be evicted. `age` is the lower the newer it is, by `birth`; `spare` if it is one of the
    newest that its group does not need."""

    request: Request
    node: NodeName
    amounts: Amounts
    group: RunningGroup
    uid: PodUID
    birth: Birth
    age: int = 0
    spare: bool = False

    @property
    def movable(self) -> bool:
        """A controller makes it anew."""
        return self.request.owner is not None

    @property
    def order(self) -> tuple[Level, bool, int]:
        return self.group.level, not self.spare, self.age


@dataclass(eq=False, slots=True)
class RunningGroup:
    """The pods of one group that run, the newest first. Questions about few pods of a large group cost little.

    `told` is what the fleet knows of the group, None if nothing."""

    told: Gang | None
    gang: Gang
    queue: QueueName
    level: Level
    members: dict[PodUID, RunningPod] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)  # by subgroup, if there are any
    _spares: int = 0

    @property
    def key(self) -> str:
        return self.gang.key

    @property
    def pods(self) -> tuple[RunningPod, ...]:
        return tuple(self.members.values())

    def order(self) -> list[RunningPod]:
        """The age of its pods is known now; those that are no longer spare, or are now."""
        if len(self.members) > 1:
            self.members = {pod.uid: pod for pod in sorted(self.members.values(), key=_age)}
        return self._find_spares()

    def take_out(self, uids: Iterable[PodUID]) -> bool:
        """These are gone; True if others of it are no longer spare, or are now."""
        gone = [self.members.pop(uid) for uid in uids]
        if not all(pod.spare for pod in gone):
            self._find_spares()
            return True
        self._spares -= len(gone)
        for pod in gone if self._counts else ():
            self._counts[pod.request.subgroup] -= 1
        return False

    def spared_by(self, uids: AbstractSet[PodUID]) -> bool:
        """The minimum still runs without these pods."""
        members = self.members
        gone = [members[uid] for uid in uids if uid in members]
        if len(members) - len(gone) < self.gang.minimum:
            return False
        if not self.gang.subgroups:
            return True
        lost = Counter(pod.request.subgroup for pod in gone)
        return all(self._counts.get(each.name, 0) - lost[each.name] >= each.minimum for each in self.gang.subgroups)

    def taken(self, uids: AbstractSet[PodUID]) -> tuple[RunningPod, ...]:
        """What goes if these pods do: they alone, or the whole group."""
        members = self.members
        if len(members) == 1:
            return self.pods
        chosen = sorted((members[uid] for uid in uids if uid in members), key=lambda pod: pod.age)
        return tuple(chosen) if not chosen or self.spared_by(uids) else self.pods

    @property
    def several(self) -> bool:
        return len(self.members) > 1

    @property
    def spare(self) -> bool:
        """It runs above its minimum."""
        return self._spares > 0

    def _find_spares(self) -> list[RunningPod]:
        more = len(self.members) - self.gang.minimum
        if not self.gang.subgroups and more <= 0 and not self._spares:
            return []
        if not self.gang.subgroups:
            self._spares, self._counts = max(0, more), {}
            changed = [pod for number, pod in enumerate(self.members.values()) if pod.spare != (number < more)]
            for pod in changed:
                pod.spare = not pod.spare
            return changed
        changed, self._spares = [], 0
        minimum = {subgroup.name: subgroup.minimum for subgroup in self.gang.subgroups}
        self._counts = Counter(pod.request.subgroup for pod in self.members.values())
        left = dict(self._counts)
        if any(left.get(name, 0) < least for name, least in minimum.items()):
            more = 0
        for pod in self.members.values():
            subgroup = pod.request.subgroup
            spare = self._spares < more and (subgroup not in minimum or left[subgroup] > minimum[subgroup])
            if spare:
                self._spares += 1
                left[subgroup] -= 1
            if pod.spare != spare:
                pod.spare = spare
                changed.append(pod)
        return changed


_age = attrgetter("age")


def amounts_of(pods: Iterable[RunningPod]) -> Amounts:
    total = NOTHING
    for pod in pods:
        total = total.plus(pod.amounts)
    return total


def birth(gang: Gang, request: Request) -> Birth:
    """Of its group, then its own; names settle the rest, since the key of a single pod is its uid."""
    name = request.key if gang.key == request.uid else gang.key
    return gang.created, name, request.created, request.name, request.uid
