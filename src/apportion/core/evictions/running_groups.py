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
    """The pods of one group that run, the newest first."""

    gang: Gang
    queue: QueueName
    level: Level
    pods: tuple[RunningPod, ...] = ()

    @property
    def key(self) -> str:
        return self.gang.key

    def spared_by(self, uids: AbstractSet[PodUID]) -> bool:
        """The minimum still runs without these pods."""
        if len(self.pods) == 1 and self.gang.minimum > 0:
            return self.pods[0].uid not in uids
        left = Counter(pod.request.subgroup for pod in self.pods if pod.uid not in uids)
        if any(left[subgroup.name] < subgroup.minimum for subgroup in self.gang.subgroups):
            return False
        return left.total() >= self.gang.minimum

    def taken(self, uids: AbstractSet[PodUID]) -> tuple[RunningPod, ...]:
        """What goes if these pods do: they alone, or the whole group."""
        if len(self.pods) == 1:
            return self.pods
        chosen = tuple(pod for pod in self.pods if pod.uid in uids)
        return chosen if not chosen or self.spared_by(uids) else self.pods

    @property
    def several(self) -> bool:
        return len(self.pods) > 1

    @property
    def spare(self) -> bool:
        """It runs above its minimum."""
        return any(pod.spare for pod in self.pods)

    def find_spares(self) -> None:
        going: set[PodUID] = set()
        for pod in self.pods:
            pod.spare = (len(self.pods) > 1 or self.gang.minimum < 1) and self.spared_by(going | {pod.uid})
            if pod.spare:
                going.add(pod.uid)


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
        by_age = [pod for group in self.groups.values() for pod in group.pods]
        by_age.sort(key=_birth, reverse=True)
        for age, pod in enumerate(by_age):
            pod.age = age
            self.on_node.setdefault(pod.node, []).append(pod)
        for group in self.groups.values():
            if len(group.pods) > 1:
                group.pods = tuple(sorted(group.pods, key=lambda pod: pod.age))
            group.find_spares()
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
        for group in {pod.group.key: pod.group for pod in gone.values()}.values():
            group.pods = tuple(pod for pod in group.pods if pod.uid not in gone)
            if not group.pods:
                del self.groups[group.key]
                continue
            group.find_spares()
            nodes.update(pod.node for pod in group.pods)
        for node in nodes:
            left = [pod for pod in self.on_node[node] if pod.uid not in gone]
            self.on_node[node] = sorted(left, key=lambda pod: pod.order)


def amounts_of(pods: Iterable[RunningPod]) -> Amounts:
    total = NOTHING
    for pod in pods:
        total = total.plus(pod.amounts)
    return total


def _birth(pod: RunningPod) -> tuple[str, str, str, str]:
    return pod.group.gang.created, pod.group.gang.key, pod.request.created, pod.request.name


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
    group.pods = tuple(
        RunningPod(request, node, charge.amounts if charge is not None else NOTHING, group, request.uid)
        for charge, request, node in charged
    )
    return group
