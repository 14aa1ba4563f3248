"""Groups that run, as victims: what may be taken of them, and in which order.

A group above its minimum can give single pods; at its minimum it goes as a whole. Victims are taken in the reverse
order of turns: from the queue with the lowest priority, of the lowest priority, single pods before whole groups, the
newest first. All groups are read once per cycle; evictions that are planned meanwhile are taken out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from apportion.apis import names
from apportion.apis.identities import NodeName, PodUID, QueueName
from apportion.apis.request import Request
from apportion.core.evictions.disruption_budgets import Allowances
from apportion.core.fleet import Fleet
from apportion.core.groups import Gang
from apportion.core.queues.amounts import NOTHING, Amounts
from apportion.core.queues.fair_shares import DEFAULT_PRIORITY

_ENDLESS = 1 << 62


class Level(NamedTuple):
    """How much it matters that somebody keeps running: first the priority of the queue, then that of the group."""

    queue: int
    group: int


@dataclass(eq=False, slots=True)
class RunningPod:
    """One pod that could be evicted. `age` is its place among all of them, the newest first; `spare` if it is one of
    the newest that its group does not need."""

    request: Request
    node: NodeName
    amounts: Amounts
    group: RunningGroup
    uid: PodUID
    age: int = 0
    spare: bool = False

    @property
    def movable(self) -> bool:
        """A controller makes it anew."""
        return self.request.owner is not None

    @property
    def order(self) -> tuple[Level, bool, int]:
        return self.group.level, not self.spare, self.age


@dataclass(eq=False)
class RunningGroup:
    """The pods of one group that run, the newest first. Questions about few pods of a large group cost little."""

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

    def order(self) -> None:
        """The age of its pods is known now."""
        if len(self.members) > 1:
            self.members = {pod.uid: pod for pod in sorted(self.members.values(), key=lambda pod: pod.age)}
        self._find_spares()

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

    def _find_spares(self) -> None:
        self._spares = 0
        more = len(self.members) - self.gang.minimum
        minimum = {subgroup.name: subgroup.minimum for subgroup in self.gang.subgroups}
        self._counts = Counter(pod.request.subgroup for pod in self.members.values()) if minimum else {}
        left = dict(self._counts)
        if any(left.get(name, 0) < least for name, least in minimum.items()):
            more = 0
        for pod in self.members.values():
            subgroup = pod.request.subgroup
            pod.spare = self._spares < more and (subgroup not in minimum or left[subgroup] > minimum[subgroup])
            if pod.spare:
                self._spares += 1
                if minimum:
                    left[subgroup] -= 1


@dataclass(eq=False)
class RunningGroups:
    """All preemptible groups of ours, as they ran at `now` (seconds). `on_node` has the pods of each node in the order
    in which they are taken."""

    fleet: Fleet
    now: int = 0
    groups: dict[str, RunningGroup] = field(default_factory=dict)
    on_node: dict[NodeName, list[RunningPod]] = field(default_factory=dict)
    generation: int = 0  # grows with every plan
    options: dict[Hashable, Any] = field(default_factory=dict)  # what searches of this cycle keep

    def __post_init__(self) -> None:
        self._seen = 0
        self._read()

    def follow(self) -> None:
        """Read everything again if pods ended meanwhile that were victims."""
        changed = self.fleet.log.since(self._seen)
        for name in self.on_node if changed is None else changed:
            node, releasing = self.fleet.nodes.get(name), self.fleet.releasing
            pods = self.on_node.get(name, ())
            if node is None or any(pod.uid not in node.pods or pod.uid in releasing for pod in pods):
                self._read()
                break
        self._seen = self.fleet.log.end

    def _read(self) -> None:
        self.generation += 1
        self.groups.clear()
        self.on_node.clear()
        self.options.clear()
        self._seen = self.fleet.log.end
        self.budgets = Allowances(self.fleet)
        for key, uids in self.fleet.group_pods.items():
            group = _group(self.fleet, key, uids)
            if group is not None:
                self.groups[key] = group
        by_age = [pod for group in self.groups.values() for pod in group.members.values()]
        by_age.sort(key=_birth, reverse=True)
        for age, pod in enumerate(by_age):
            pod.age = age
            self.on_node.setdefault(pod.node, []).append(pod)
        for group in self.groups.values():
            group.order()
        for pods in self.on_node.values():
            pods.sort(key=lambda pod: pod.order)
        amounts = [pod.amounts for pod in by_age if pod.movable]
        self.smallest_movable = tuple(min((each[n] for each in amounts if each[n]), default=_ENDLESS) for n in range(3))
        self.queues = {group.queue: None for group in self.groups.values()}

    def __iter__(self) -> Iterator[RunningGroup]:
        return iter(self.groups.values())

    @property
    def pods(self) -> list[RunningPod]:
        """In the order in which they are taken."""
        return sorted((pod for group in self for pod in group.pods), key=lambda pod: pod.order)

    def with_whole_groups(self, pods: Iterable[RunningPod]) -> tuple[RunningPod, ...]:
        """These pods, and with each group that they break all of its pods."""
        chosen: dict[str, set[PodUID]] = {}
        for pod in pods:
            chosen.setdefault(pod.group.key, set()).add(pod.uid)
        return tuple(pod for key in sorted(chosen) for pod in self.groups[key].taken(chosen[key]))

    def take_out(self, evicted: Iterable[RunningPod]) -> None:
        """These are being evicted: they are no victims any more."""
        gone = {pod.uid: pod for pod in evicted}
        self.generation += 1
        self.budgets.use(gone)
        nodes = {pod.node for pod in gone.values()}
        groups: dict[str, list[PodUID]] = {}
        for pod in gone.values():
            groups.setdefault(pod.group.key, []).append(pod.uid)
        for key, uids in groups.items():
            group = self.groups[key]
            if group.take_out(uids):
                nodes.update(pod.node for pod in group.members.values())
            if not group.members:
                del self.groups[key]
        for node in nodes:
            left = [pod for pod in self.on_node[node] if pod.uid not in gone]
            self.on_node[node] = sorted(left, key=lambda pod: pod.order)


def amounts_of(pods: Iterable[RunningPod]) -> Amounts:
    total = NOTHING
    for pod in pods:
        total = total.plus(pod.amounts)
    return total


def _birth(pod: RunningPod) -> tuple[str, str, str, str, str]:
    """Of its group, then its own; names settle the rest, since the key of a single pod is its uid."""
    gang, request = pod.group.gang, pod.request
    name = request.key if gang.key == pod.uid else gang.key
    return gang.created, name, request.created, request.name, pod.uid


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
    group = RunningGroup(fleet.gangs.get(key) or fleet.gang_of(first), first.queue, level)
    charged = ((fleet.accounts.charge(request.uid), request, node) for request, node in found)
    group.members = {
        request.uid: RunningPod(request, node, charge.amounts if charge is not None else NOTHING, group, request.uid)
        for charge, request, node in charged
    }
    return group
