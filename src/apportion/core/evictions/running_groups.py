"""Groups that run, as victims: what may be taken of them, and in which order.

A group above its minimum can give single pods; at its minimum it goes as a whole. Victims are taken in the reverse
order of turns: from the queue with the lowest priority, of the lowest priority, single pods before whole groups, the
newest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from apportion.apis import names
from apportion.apis.identities import NodeName, PodUID, QueueName
from apportion.apis.request import Request
from apportion.core.fleet import Fleet
from apportion.core.groups import Gang
from apportion.core.queues.amounts import NOTHING, Amounts
from apportion.core.queues.tree import DEFAULT_PRIORITY


class Level(NamedTuple):
    """How much it matters that somebody keeps running: first the priority of the queue, then that of the group."""

    queue: int
    group: int


@dataclass(eq=False)
class RunningPod:
    """One pod that could be evicted. `age` is its place among all of them, the newest first."""

    request: Request
    node: NodeName
    amounts: Amounts
    group: RunningGroup
    age: int = 0

    @property
    def uid(self) -> PodUID:
        return self.request.uid

    @property
    def movable(self) -> bool:
        """A controller makes it anew."""
        return self.request.owner is not None


@dataclass(eq=False)
class RunningGroup:
    """The pods of one group that run, the newest first."""

    gang: Gang
    queue: QueueName
    level: Level
    pods: tuple[RunningPod, ...] = ()

    @property
    def key(self) -> str:
        return self.gang.key

    def spared_by(self, uids: frozenset[PodUID] | set[PodUID]) -> bool:
        """The minimum still runs without these pods."""
        left = Counter(pod.request.subgroup for pod in self.pods if pod.uid not in uids)
        if any(left[subgroup.name] < subgroup.minimum for subgroup in self.gang.subgroups):
            return False
        return left.total() >= self.gang.minimum

    def taken(self, uids: set[PodUID]) -> tuple[RunningPod, ...]:
        """What goes if these pods do: they alone, or the whole group."""
        chosen = tuple(pod for pod in self.pods if pod.uid in uids)
        return chosen if not chosen or self.spared_by(uids) else self.pods

    @property
    def spare(self) -> bool:
        """It runs above its minimum."""
        return any(self.spared_by({pod.uid}) for pod in self.pods)


class RunningGroups:
    """All preemptible groups of ours. `pods` are in the order in which they are taken."""

    def __init__(self, fleet: Fleet, skipped: Iterable[str] = ()) -> None:
        """`skipped` are groups that must not be taken."""
        excluded = set(skipped)
        self.groups = {
            key: group
            for key, uids in fleet.group_pods.items()
            if key not in excluded and (group := _group(fleet, key, uids)) is not None
        }
        everybody = [pod for group in self.groups.values() for pod in group.pods]
        everybody.sort(key=lambda pod: (pod.group.gang.created, pod.group.key, pod.request.created, pod.request.name))
        everybody.reverse()
        for age, pod in enumerate(everybody):
            pod.age = age
        for group in self.groups.values():
            group.pods = tuple(sorted(group.pods, key=lambda pod: pod.age))
        spares = {pod.uid for group in self.groups.values() for pod in _spares(group)}
        self.pods = sorted(everybody, key=lambda pod: (pod.group.level, pod.uid not in spares, pod.age))
        self.on_node: dict[NodeName, list[RunningPod]] = {}
        for pod in self.pods:
            self.on_node.setdefault(pod.node, []).append(pod)

    def __iter__(self) -> Iterator[RunningGroup]:
        return iter(self.groups.values())

    def with_whole_groups(self, pods: Iterable[RunningPod]) -> tuple[RunningPod, ...]:
        """These pods, and with each group that they break all of its pods."""
        chosen: dict[str, set[PodUID]] = {}
        for pod in pods:
            chosen.setdefault(pod.group.key, set()).add(pod.uid)
        return tuple(pod for key in sorted(chosen) for pod in self.groups[key].taken(chosen[key]))


def amounts_of(pods: Iterable[RunningPod]) -> Amounts:
    total = NOTHING
    for pod in pods:
        total = total.plus(pod.amounts)
    return total


def _group(fleet: Fleet, key: str, uids: Iterable[PodUID]) -> RunningGroup | None:
    """None if it must not be evicted: not ours, not preemptible, or on its way out already."""
    found: list[tuple[Request, NodeName]] = []
    for uid in uids:
        node = fleet.pod_nodes[uid]
        request = fleet.nodes[node].pods[uid]
        if request.scheduler_name not in names.OUR_SCHEDULERS or not request.preemptible:
            return None
        if uid not in fleet.releasing:
            found.append((request, node))
    if not found:
        return None
    first = found[0][0]
    queue = fleet.accounts.tree.queues.get(first.queue)
    level = Level(
        queue.priority if queue is not None else DEFAULT_PRIORITY,
        max(request.effective_priority for request, _ in found),
    )
    group = RunningGroup(fleet.gang_of(first), first.queue, level)
    charged = ((fleet.accounts.charge(request.uid), request, node) for request, node in found)
    group.pods = tuple(
        RunningPod(request, node, charge.amounts if charge is not None else NOTHING, group)
        for charge, request, node in charged
    )
    return group


def _spares(group: RunningGroup) -> list[RunningPod]:
    """The newest pods that can go while the minimum runs on."""
    going: set[PodUID] = set()
    found = []
    for pod in group.pods if len(group.pods) > 1 or group.gang.minimum < 1 else ():
        if group.spared_by(going | {pod.uid}):
            going.add(pod.uid)
            found.append(pod)
    return found
