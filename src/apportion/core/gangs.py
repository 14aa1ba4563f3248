"""Which pods of a group have their turn together.

Until the minimum runs, all pods that are missing from it, of every subgroup; after that one pod at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import islice
from typing import NamedTuple

from apportion.apis.request import Request
from apportion.core.fleet import Fleet
from apportion.core.groups import Gang


class State(IntEnum):
    """Groups that lack their minimum come first, then those that have nothing else."""

    BELOW = 0
    AT = 1
    ABOVE = 2


class Part(NamedTuple):
    """A group, or one of its subgroups, with the pods that exist of it and those that it needs to start. Besides them
    there are `gated` pods."""

    subgroup: str
    exist: int
    minimum: int
    gated: int = 0

    @property
    def missing(self) -> int:
        return self.minimum - self.exist

    @property
    def to_create(self) -> int:
        """Missing even if no pod had a gate."""
        return max(0, self.missing - self.gated)


class NextMembers(NamedTuple):
    """`missing` pods that do not exist yet, so that the minimum cannot be reached; no `members` then."""

    state: State
    members: tuple[Request, ...]
    missing: int = 0


def age(pod: Request) -> tuple[str, str]:
    """Members have their turn in this order."""
    return pod.created, pod.name


def next_members(fleet: Fleet, gang: Gang, waiting: Sequence[Request]) -> NextMembers:
    """`waiting` are in the order of `age`. Pods of the group that run, or have a place reserved, count; those that are
    terminating do not."""
    if not gang.subgroups:
        bound = (uid for uid in fleet.group_pods.get(gang.key, ()) if uid not in fleet.releasing)
        running = sum(1 for _ in islice(bound, gang.minimum + 1))  # a job may have thousands of them
        in_all, minimum = max(0, gang.minimum - running), gang.minimum
        chosen, missing = tuple(waiting[:in_all]), max(0, in_all - len(waiting))
    else:
        by_subgroup = _running(fleet, gang)
        running = by_subgroup.total()
        in_all = max(0, gang.minimum - running)
        wanted = {each.name: max(0, each.minimum - by_subgroup[each.name]) for each in gang.subgroups}
        minimum = max(gang.minimum, sum(each.minimum for each in gang.subgroups))
        chosen, missing = _chosen(waiting, wanted, in_all)
    if not chosen and not missing:
        return NextMembers(State.ABOVE if running > minimum else State.AT, tuple(waiting[:1]))
    return NextMembers(State.BELOW, () if missing else chosen, missing)


def incomplete(fleet: Fleet, gang: Gang, pending: Iterable[Request]) -> list[Part]:
    """The whole group first (subgroup ""), if all minimums together are more than the pods that exist; then the
    subgroups that lack pods."""
    exist = _running(fleet, gang) + Counter(pod.subgroup for pod in pending)
    gated = Counter(dict(gang.gated))
    parts = [Part(each.name, exist[each.name], each.minimum, gated[each.name]) for each in gang.subgroups]
    least = max(gang.minimum, sum(each.minimum for each in gang.subgroups))
    whole = Part("", exist.total(), least, gated.total())
    return [part for part in (whole, *parts) if part.missing > 0]


def _running(fleet: Fleet, gang: Gang) -> Counter[str]:
    """By subgroup."""
    return Counter(
        fleet.nodes[fleet.pod_nodes[uid]].pods[uid].subgroup
        for uid in fleet.group_pods.get(gang.key, ())
        if uid not in fleet.releasing
    )


def _chosen(waiting: Sequence[Request], wanted: dict[str, int], in_all: int) -> tuple[tuple[Request, ...], int]:
    """The oldest of each subgroup, then any until there are enough; and how many are missing."""
    left = Counter(wanted)
    chosen = []
    for pod in waiting:
        if left[pod.subgroup] > 0:
            left[pod.subgroup] -= 1
            chosen.append(pod)
    missing = sum(count for count in left.values() if count > 0)
    known = {pod.uid for pod in chosen}
    others = [pod for pod in waiting if pod.uid not in known]
    chosen += others[: max(0, in_all - len(chosen))]
    return tuple(chosen), max(missing, in_all - len(chosen), 0)
