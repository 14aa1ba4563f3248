"""Groups in the fleet: their minimum, since when it runs, and since when pods run without it.

A group is in the fleet as long as it has pods. If pods come to one group in two ways, by their PodGroup and by their
owner, the PodGroup counts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from apportion.apis.identities import PodUID
from apportion.core.fleet import Fleet
from apportion.core.groups import Gang


class Member(NamedTuple):
    """A pod in a group. `started` is when it began to run, in seconds; None if it does not run, or is terminating.

    `gang` is what the pod's PodGroup (`by_pod_group`) or owner says of the group; None if nothing is known of it. A pod
    without a group has its uid as `key`. A pod that is `gated` cannot be placed yet.
    """

    key: str
    gang: Gang | None = None
    by_pod_group: bool = False
    subgroup: str = ""
    started: int | None = None
    gated: bool = False


@dataclass(eq=False)
class _Group:
    pods: dict[PodUID, None] = field(default_factory=dict)
    said: Counter[tuple[bool, Gang]] = field(default_factory=Counter)
    starts: list[int] = field(default_factory=list)  # sorted, like those of its subgroups
    subgroup_starts: dict[str, list[int]] = field(default_factory=dict)
    gated: Counter[str] = field(default_factory=Counter)  # by subgroup


class GangMembers:
    """All pods of ours, with or without a node, by group."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._members: dict[PodUID, Member] = {}
        self._groups: dict[str, _Group] = {}

    def __iter__(self) -> Iterator[PodUID]:
        return iter(self._members)

    def of(self, key: str) -> list[PodUID]:
        group = self._groups.get(key)
        return list(group.pods) if group is not None else []

    def groups(self) -> list[str]:
        """The keys of all groups; a pod without a group has its uid."""
        return list(dict.fromkeys(member.key for member in self._members.values()))

    def key_of(self, uid: PodUID) -> str | None:
        """The group of a pod; None if it is no pod of ours."""
        member = self._members.get(uid)
        return member.key if member is not None else None

    def without_gang(self) -> list[PodUID]:
        """Pods in groups of which nothing is known."""
        return [uid for uid, member in self._members.items() if member.gang is None and member.by_pod_group]

    def set(self, uid: PodUID, member: Member | None) -> bool:
        """A pod is in a group, or in none (it is gone); True if that changed what is known of a group of others."""
        before = self._members.get(uid)
        if before == member:
            return False
        changed = False
        if before is not None:
            del self._members[uid]
            self._leave(uid, before)
            if member is None or member.key != before.key:
                changed = self._update(before.key)
        if member is not None:
            first = member.key not in self._groups
            self._enter(uid, member)
            changed = (self._update(member.key) and not first) or changed
        return changed

    def set_started(self, uid: PodUID, started: int | None) -> None:
        member = self._members.get(uid)
        if member is not None:
            self.set(uid, member._replace(started=started))

    def _enter(self, uid: PodUID, member: Member) -> None:
        self._members[uid] = member
        if member.key == uid:
            return
        group = self._groups.get(member.key)
        if group is None:
            group = self._groups[member.key] = _Group()
        group.pods[uid] = None
        if member.gang is not None:
            group.said[not member.by_pod_group, member.gang] += 1
        if member.started is not None:
            insort(group.starts, member.started)
            insort(group.subgroup_starts.setdefault(member.subgroup, []), member.started)
        group.gated[member.subgroup] += member.gated

    def _leave(self, uid: PodUID, member: Member) -> None:
        if member.key == uid:
            return
        group = self._groups[member.key]
        del group.pods[uid]
        if member.gang is not None:
            said = (not member.by_pod_group, member.gang)
            group.said[said] -= 1
            if not group.said[said]:
                del group.said[said]
        if member.started is not None:
            for starts in (group.starts, group.subgroup_starts[member.subgroup]):
                del starts[bisect_left(starts, member.started)]
        group.gated[member.subgroup] -= member.gated

    def _update(self, key: str) -> bool:
        group = self._groups.get(key)
        if group is None:
            self._update_single(PodUID(key))
            return False
        if not group.pods:
            del self._groups[key]
        known = self._fleet.gangs.get(key)
        if not group.said:
            self._fleet.forget_gang(key)
            return known is not None and bool(group.pods)
        gang = next(iter(group.said))[1] if len(group.said) == 1 else min(group.said, key=_order)[1]
        gang = _completed(gang, group)
        if gang == known:
            return False
        self._fleet.set_gang(gang)
        return known is None or _undated(known) != _undated(gang)

    def _update_single(self, uid: PodUID) -> None:
        """Of a pod without a group only the start is of interest."""
        member = self._members.get(uid)
        if member is not None and member.key == uid and member.gang is not None and member.started is not None:
            self._fleet.set_gang(msgspec.structs.replace(member.gang, started=member.started))
        else:
            self._fleet.forget_gang(uid)


def _order(said: tuple[bool, Gang]) -> tuple[bool, bytes]:
    by_owner, gang = said
    return by_owner, msgspec.json.encode(gang)


def _completed(gang: Gang, group: _Group) -> Gang:
    """With what its pods say. A group that lacks its minimum had it when its latest pod started."""
    started, below_since = _started(gang, group), gang.below_since
    gated = tuple(sorted((name, count) for name, count in group.gated.items() if count))
    if below_since is not None and group.starts:
        below_since = max(below_since, group.starts[-1])
    if (started, below_since, gated) == (gang.started, gang.below_since, gang.gated):
        return gang
    return msgspec.structs.replace(gang, started=started, below_since=below_since, gated=gated)


def _undated(gang: Gang) -> Gang:
    if gang.started is None and gang.below_since is None:
        return gang
    return msgspec.structs.replace(gang, started=None, below_since=None)


def _started(gang: Gang, group: _Group) -> int | None:
    """When the last pod of the minimum began to run."""
    needed: Iterable[tuple[list[int], int]] = [
        (group.starts, gang.minimum),
        *((group.subgroup_starts.get(each.name, []), each.minimum) for each in gang.subgroups),
    ]
    latest = 0
    for starts, minimum in needed:
        if len(starts) < minimum:
            return None
        if minimum:
            latest = max(latest, starts[minimum - 1])
    return latest
