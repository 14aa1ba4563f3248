"""All groups that run and could be victims, kept up to date.

A group is a function of the fleet. It is read again when one of its pods, or what is known of the group, has changed:
nodes that changed are found in the log of the fleet, and compared with what was seen there before. Evictions that are
planned meanwhile are taken out.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from apportion.apis import names
from apportion.apis.identities import NodeName, PodUID, QueueName
from apportion.apis.request import Request
from apportion.core import gangs
from apportion.core.evictions.disruption_budgets import Allowances
from apportion.core.evictions.pod_ages import PodAges
from apportion.core.evictions.running_group import Level, RunningGroup, RunningPod, birth
from apportion.core.fleet import Fleet
from apportion.core.queues.accounts import Charge
from apportion.core.queues.amounts import NOTHING
from apportion.core.queues.fair_shares import DEFAULT_PRIORITY
from apportion.core.queues.tree import QueueTree

_ENDLESS = 1 << 62
_PODS_PER_STEP = 250  # that are read again
_NODES_PER_STEP = 150  # whose pods are put in order


class _Seen(NamedTuple):
    """A pod of any kind when its node was last looked at."""

    request: Request
    node: NodeName
    releasing: bool
    charge: Charge | None


@dataclass
class _Changes:
    """What was seen and is not in the groups yet: by group the pods in question, and nodes with other pods."""

    groups: dict[str, set[PodUID]] = field(default_factory=dict)
    nodes: dict[NodeName, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.groups or self.nodes)


class _Reading(NamedTuple):
    """A group, None if nobody of it can be evicted; pods that are no longer like this, and those that are now."""

    group: RunningGroup | None
    gone: Iterable[RunningPod]
    fresh: Collection[RunningPod]


class RunningGroups:
    """All preemptible groups of ours, as they ran at `now` (seconds). `on_node` has the pods of each node in the order
    in which they are taken."""

    def __init__(self, fleet: Fleet, now: int = 0) -> None:
        self.fleet = fleet
        self.groups: dict[str, RunningGroup] = {}
        self.on_node: dict[NodeName, list[RunningPod]] = {}
        self.generation = 0  # grows with every plan
        self.options: dict[Hashable, Any] = {}  # what searches keep until the next update
        self._ages = PodAges()
        self._seen: dict[NodeName, dict[PodUID, _Seen]] = {}
        self._groups: dict[str, dict[PodUID, _Seen]] = {}  # the same by group
        self._position = -1  # in the log of the fleet
        self._unseen: set[NodeName] = set()  # nodes that changed, and were not looked at
        self._tree: QueueTree | None = None
        self._changes = _Changes()
        self._taken: dict[str, set[PodUID]] = {}  # out of the groups by plans
        self._queues: dict[QueueName, int] | None = None
        self._smallest: tuple[int, ...] | None = None
        self.update(now)

    def update(self, now: int) -> None:
        """As everything is now; searches begin anew."""
        self.now = now
        self._catch_up()
        self.budgets = Allowances(self.fleet)
        self._begin_anew()

    def steps(self) -> Iterator[None]:
        """What `update` has to do, in steps of a few milliseconds. Nobody may search before the last one."""
        return self._parts(_PODS_PER_STEP, _NODES_PER_STEP)

    def follow(self) -> None:
        """Only if pods ended meanwhile that were victims everything is read as it is now."""
        changed = self.fleet.log.since(self._position)
        self._position = self.fleet.log.end
        self._unseen.update({*self._seen, *self.fleet.nodes} if changed is None else changed)
        if self._changes or any(self._have_ended(name) for name in (self.on_node if changed is None else changed)):
            self._catch_up()

    def _have_ended(self, name: NodeName) -> bool:
        node, releasing = self.fleet.nodes.get(name), self.fleet.releasing
        pods = self.on_node.get(name, ())
        return any(node is None or pod.uid not in node.pods or pod.uid in releasing for pod in pods)

    def __iter__(self) -> Iterator[RunningGroup]:
        return iter(self.groups.values())

    @property
    def pods(self) -> list[RunningPod]:
        """In the order in which they are taken."""
        return sorted((pod for group in self for pod in group.pods), key=lambda pod: pod.order)

    @property
    def queues(self) -> dict[QueueName, int]:
        """Queues with victims, and the lowest priority of their groups."""
        if self._queues is None:
            found: dict[QueueName, int] = {}
            for group in self:
                found[group.queue] = min(group.level.group, found.get(group.queue, group.level.group))
            self._queues = found
        return self._queues

    @property
    def smallest_movable(self) -> tuple[int, ...]:
        """Of each resource the least that a pod holds which can be moved."""
        if self._smallest is None:
            amounts = [pod.amounts for pod in self._ages.pods.values() if pod.movable]
            self._smallest = tuple(min((each[n] for each in amounts if each[n]), default=_ENDLESS) for n in range(3))
        return self._smallest

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
            self._taken.setdefault(key, set()).update(uids)
            group = self.groups[key]
            if group.take_out(uids):
                nodes.update(pod.node for pod in group.members.values())
            if not group.members:
                del self.groups[key]
        for node in nodes:
            left = [pod for pod in self.on_node[node] if pod.uid not in gone]
            self.on_node[node] = sorted(left, key=lambda pod: pod.order)

    # Changes of the fleet

    def _catch_up(self) -> None:
        for _ in self._parts(_ENDLESS, _ENDLESS):
            pass

    def _parts(self, pods: int, nodes: int) -> Iterator[None]:
        """Look at what has changed, read groups again, then put the pods of nodes in order: about so many at a time."""
        changed = self.fleet.log.since(self._position)
        self._unseen.update({*self._seen, *self.fleet.nodes} if changed is None else changed)
        self._position = self.fleet.log.end
        while self._unseen:
            for name in list(islice(self._unseen, nodes)):
                self._unseen.discard(name)
                self._look_at(name)
            yield
        self._look_at_groups()
        while self._changes:
            self._renew(pods, nodes)
            yield

    def _look_at(self, name: NodeName) -> None:
        node, releasing, charge = self.fleet.nodes.get(name), self.fleet.releasing, self.fleet.accounts.charge
        pods = node.pods if node is not None else {}
        now = {uid: _Seen(request, name, uid in releasing, charge(uid)) for uid, request in pods.items()}
        before = self._seen.get(name, {})
        if now == before:
            return
        for uid, state in before.items():
            if now.get(uid) != state:
                self._see(uid, state, gone=True)
        for uid, state in now.items():
            if not before or before.get(uid) != state:
                self._see(uid, state)
        if now:
            self._seen[name] = now
        else:
            del self._seen[name]
        self._changes.nodes[name] = None

    def _see(self, uid: PodUID, state: _Seen, *, gone: bool = False) -> None:
        key = state.request.group_key
        changed = self._changes.groups.get(key)
        if changed is None:
            self._changes.groups[key] = {uid}
        else:
            changed.add(uid)
        pods = self._groups.setdefault(key, {})
        if not gone:
            pods[uid] = state
        elif uid in pods and pods[uid].node == state.node:  # it may have been seen elsewhere meanwhile
            del pods[uid]
            if not pods:
                del self._groups[key]

    def _look_at_groups(self) -> None:
        groups = self._changes.groups
        for key, uids in self._taken.items():
            groups.setdefault(key, set()).update(uids)
        self._taken.clear()
        known, tree = self.fleet.gangs, self.fleet.accounts.tree
        moved, self._tree = self._tree is not tree, tree
        for key, group in self.groups.items():
            if known.get(key) is not group.told or (moved and self._priority(group.queue) != group.level.queue):
                groups.setdefault(key, set())

    def _renew(self, pods: int, nodes: int) -> None:
        groups, gone, fresh = [], list[RunningPod](), list[RunningPod]()
        changes = self._changes
        while changes.groups and pods > 0:
            key, uids = changes.groups.popitem()
            reading = self._read(key, uids)
            gone += reading.gone
            fresh += reading.fresh
            pods -= len(uids) + len(reading.fresh)
            if reading.group is not None:
                groups.append(reading.group)
        self._ages.change(gone, fresh)
        for pod in (*gone, *fresh):
            changes.nodes[pod.node] = None
        for group in groups:
            for pod in group.order():
                changes.nodes[pod.node] = None
        if not changes.groups:
            for name in list(islice(changes.nodes, nodes)):
                del changes.nodes[name]
                self._put_in_order(name)
        self._queues = self._smallest = None
        self._begin_anew()

    def _read(self, key: str, uids: Collection[PodUID]) -> _Reading:
        """A group as its pods were seen. Only these of them may have changed."""
        known, ages = self.groups.pop(key, None), self._ages.pods
        before, members = (dict(known.members), dict(known.members)) if known is not None else ({}, {})
        for uid in uids:
            members.pop(uid, None)
            pod = ages.get(uid)
            if pod is not None and pod.group.key == key:
                before[uid] = pod  # it may have been taken out
        seen = self._groups.get(key, {})
        found = _victims(seen.values() if known is None else [seen[uid] for uid in uids if uid in seen])
        if found is None or not (members or found):
            return _Reading(None, before.values(), ())
        group = self._described(key, members, found)
        if known is not None and (known.gang.created, known.level) == (group.gang.created, group.level):
            known.told, known.gang, known.queue = group.told, group.gang, group.queue
            group = known
        else:
            found += [seen[uid] for uid in members]
            members = {}
        fresh = []
        for request, node, _, charge in found:
            uid = request.uid
            amounts = charge.amounts if charge is not None else NOTHING
            pod = before.get(uid)
            if (
                pod is None
                or pod.group is not group
                or (pod.request, pod.node, pod.amounts) != (request, node, amounts)
            ):
                pod = RunningPod(request, node, amounts, group, uid, birth(group.gang, request))
                fresh.append(pod)
            members[uid] = pod
        group.members = members
        self.groups[key] = group
        if not before:
            return _Reading(group, (), fresh)
        maybe = uids if group is known else before
        gone = [pod for uid in maybe if (pod := before.get(uid)) is not None and members.get(uid) is not pod]
        return _Reading(group, gone, fresh)

    def _described(self, key: str, members: dict[PodUID, RunningPod], found: list[_Seen]) -> RunningGroup:
        """What is known of the group that has these pods. The last of the members is the oldest of them."""
        if not members and len(found) == 1:
            first = found[0].request
            top = first.effective_priority
        else:
            requests = [each.request for each in found]
            if members:
                requests.append(next(reversed(members.values())).request)
            first = min(requests, key=gangs.age)
            requests += [pod.request for pod in members.values()]
            top = max(request.effective_priority for request in requests)
        told = self.fleet.gangs.get(key)
        gang = told or self.fleet.gang_of(first)
        return RunningGroup(told, gang, first.queue, Level(self._priority(first.queue), top))

    def _put_in_order(self, name: NodeName) -> None:
        found: list[RunningPod] = []
        for uid, state in self._seen.get(name, {}).items():
            group = self.groups.get(state.request.group_key)
            pod = group.members.get(uid) if group is not None else None
            if pod is not None:
                found.append(pod)
        if found:
            found.sort(key=_order)
            self.on_node[name] = found
        else:
            self.on_node.pop(name, None)

    def _priority(self, queue: QueueName) -> int:
        found = self.fleet.accounts.tree.queues.get(queue)
        return found.priority if found is not None else DEFAULT_PRIORITY

    def _begin_anew(self) -> None:
        self.generation += 1
        self.options.clear()


_order = attrgetter("order")


def _victims(seen: Iterable[_Seen]) -> list[_Seen] | None:
    """Those of these pods of a group that could be evicted; None if one forbids that for all: it is not ours, or not
    preemptible."""
    found = []
    for state in seen:
        request = state.request
        if request.scheduler_name not in names.OUR_SCHEDULERS or not request.preemptible:
            return None
        if not state.releasing:
            found.append(state)
    return found
