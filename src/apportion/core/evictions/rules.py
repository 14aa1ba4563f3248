"""Who may be evicted for whom.

reclaim   a queue within its fair share takes from queues above theirs, or, within its quota, from queues above theirs
preempt   a group takes from groups of its own queue with a lower priority
move      whoever finds another place can be asked to go there, if a controller makes the pod anew

A group that started a short time ago keeps its minimum (minimum runtimes of queues): only its spare pods may go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from enum import IntEnum
from typing import NamedTuple, Protocol

from apportion.apis.identities import QueueName
from apportion.core.evictions.running_group import RunningGroup, RunningPod, amounts_of
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.queues import quantities
from apportion.core.queues.accounts import Accounts
from apportion.core.queues.amounts import NOTHING, RESOURCES, Amounts
from apportion.core.queues.shares import Shares
from apportion.core.queues.tree import Queue, QueueTree


class Extent(IntEnum):
    """How much of a group may be taken."""

    NOTHING = 0
    SPARE = 1
    EVERYTHING = 2


class Taker(NamedTuple):
    """Whom the room is made for: pods of one group, what they need together."""

    key: str
    queue: QueueName
    priority: int
    need: Amounts


class Rules(Protocol):
    """`allows` says how much of a group may go; `allows_loss` is asked about all pods together that are
    lost, and all that are evicted. Rules
    with equal `kind` give equal answers about groups."""

    moves_only: bool
    allows_any: bool  # what it allows to take, it allows in any part

    @property
    def kind(self) -> Hashable: ...

    def allows(self, group: RunningGroup) -> Extent: ...

    def allows_loss(self, lost: Iterable[RunningPod], evicted: Iterable[RunningPod]) -> bool: ...


class Moves:
    """Nobody is lost. Pods with slices stay where they are, unless `slices` says that they may be moved."""

    moves_only = True
    allows_any = True

    def __init__(self, tree: QueueTree, taker: Taker, running: RunningGroups, *, slices: bool) -> None:
        self._taker, self._tree, self._now, self._slices = taker, tree, running.now, slices
        self.kind = ("move", taker.key if taker.key in running.groups else "")

    def allows(self, group: RunningGroup) -> Extent:
        if group.key == self._taker.key:
            return Extent.NOTHING
        if not all(pod.movable and (self._slices or not pod.request.slices) for pod in group.members.values()):
            return Extent.NOTHING
        return _unless_young(group, _preempt_runtime(self._tree, group.queue), self._now)

    def allows_loss(self, lost: Iterable[RunningPod], evicted: Iterable[RunningPod]) -> bool:  # noqa: ARG002
        return not any(True for _ in lost)


class Preemption:
    moves_only = False
    allows_any = False

    def __init__(self, accounts: Accounts, shares: Shares, taker: Taker, running: RunningGroups) -> None:
        self._taker, self._tree, self._now = taker, accounts.tree, running.now
        self._accounts, self._shares = accounts, shares
        self.kind = ("preempt", taker.queue, taker.priority)
        self.hopeless = running.queues.get(taker.queue, taker.priority) >= taker.priority

    def allows(self, group: RunningGroup) -> Extent:
        if group.queue != self._taker.queue or group.level.group >= self._taker.priority:
            return Extent.NOTHING
        return _unless_young(group, _preempt_runtime(self._tree, group.queue), self._now)

    def allows_loss(self, lost: Iterable[RunningPod], evicted: Iterable[RunningPod]) -> bool:  # noqa: ARG002
        """No queue gets further above its fair share by it while another waits below its own, and would reclaim it."""
        more = self._taker.need.minus(amounts_of(evicted))
        return not any(
            more[number] > 0 and self._would_be_reclaimed(name, number, more[number])
            for number in range(len(RESOURCES))
            for name in self._tree.path(self._taker.queue)
        )

    def _would_be_reclaimed(self, name: QueueName, number: int, more: int) -> bool:
        if self._accounts.used(name)[number] + more <= self._shares.get(name, NOTHING)[number]:
            return False
        siblings = self._tree.children(self._tree.queues[name].parent) if name in self._tree else ()
        return any(
            self._accounts.used(sibling)[number] < self._shares.get(sibling, NOTHING)[number]
            for sibling in siblings
            if sibling != name
        )


class Reclaim:
    """Queues are compared where their paths meet, as they were before anybody was evicted."""

    moves_only = False
    allows_any = True

    def __init__(self, accounts: Accounts, shares: Shares, taker: Taker, running: RunningGroups) -> None:
        self._accounts, self._tree, self._shares = accounts, accounts.tree, shares
        self._taker, self._now = taker, running.now
        self._path = self._tree.path(taker.queue)
        self._asked = [number for number, amount in enumerate(taker.need) if amount > 0]
        self._said: dict[QueueName, str] = {}
        self._meets: dict[QueueName, tuple[QueueName, QueueName]] = {}
        self._queues = frozenset(queue for queue in running.queues if self._allows(queue)) if self.open else frozenset()
        self.kind = ("reclaim", taker.queue, self._queues)

    @property
    def open(self) -> bool:
        """The taker stays within its fair share."""
        used, share = self._used(self._taker.queue), self._share(self._taker.queue)
        return all(used[number] + self._taker.need[number] <= share[number] for number in self._asked)

    @property
    def hopeless(self) -> bool:
        return not self._queues

    def takes_from(self, queue: QueueName) -> bool:
        """Pods of this queue can be reclaimed, unless something protects them."""
        return self.open and self._allows(queue)

    def allows(self, group: RunningGroup) -> Extent:
        if group.queue not in self._queues:
            return Extent.NOTHING
        return _unless_young(group, _reclaim_runtime(self._tree, self._meet(group.queue)[1]), self._now)

    def said_above(self, queue: QueueName) -> str:
        """By how much the side of the victim is above, before anything is evicted."""
        return self._said.setdefault(queue, self._say(self._meet(queue)[1]))

    def _say(self, theirs: QueueName) -> str:
        number = next((n for n in self._asked if self._used(theirs)[n] > self._share(theirs)[n]), None)
        if number is not None:
            amount, kind = self._share(theirs)[number], "fair share"
        else:
            number, kind = self._asked[0] if self._asked else 0, "quota"
            amount = self._quota(theirs)[number]
        used, most = (quantities.said(RESOURCES[number], each) for each in (self._used(theirs)[number], amount))
        return f"queue {theirs} uses {used} and has a {kind} of {most}"

    def allows_loss(self, lost: Iterable[RunningPod], evicted: Iterable[RunningPod]) -> bool:  # noqa: ARG002
        """In whatever order they go, each is above before it goes (so the last of a queue may leave it below); nobody
        ends up worse off than the taker."""
        by_queue: dict[tuple[QueueName, QueueName], dict[str, Amounts]] = {}
        for pod in lost:
            units = by_queue.setdefault(self._meet(pod.group.queue), {})
            key = pod.group.key if not pod.group.spare else pod.uid
            units[key] = units[key].plus(pod.amounts) if key in units else pod.amounts
        return all(self._allows_units(*meet, sorted(units.values(), reverse=True)) for meet, units in by_queue.items())

    def _allows_units(self, mine: QueueName, theirs: QueueName, units: list[Amounts]) -> bool:
        left = self._used(theirs)
        for amounts in units:
            if not self._is_above(theirs, left, mine):
                return False
            left = left.minus(amounts)
        return not self._is_fuller(mine, theirs, left)

    def _allows(self, queue: QueueName) -> bool:
        if queue == self._taker.queue or queue not in self._tree:
            return False
        mine, theirs = self._meet(queue)
        if not self._is_above(theirs, self._used(theirs), mine):
            return False
        path = self._tree.path(queue)
        for name in path[: path.index(theirs)]:  # below a queue that is above its share, those that are to blame
            if self._exceeds_share(name):
                continue
            siblings = self._tree.children(self._tree.queues[name].parent)
            if any(map(self._exceeds_share, siblings)):
                return False
        return True

    def _meet(self, queue: QueueName) -> tuple[QueueName, QueueName]:
        """The two siblings at which the ways of taker and victim part."""
        known = self._meets.get(queue)
        if known is None:
            theirs = self._tree.path(queue)
            common = set(self._path) & set(theirs)
            mine = [name for name in self._path if name not in common]
            other = [name for name in theirs if name not in common]
            known = self._meets[queue] = (mine[-1], other[-1])
        return known

    def _is_above(self, theirs: QueueName, used: Amounts, mine: QueueName) -> bool:
        ranks = self._tree.queues[mine].priority, self._tree.queues[theirs].priority
        if ranks[0] >= ranks[1] and self._exceeds(used, self._share(theirs)):
            return True  # what nobody has a quota for goes to the higher priority first
        quota, own = self._quota(theirs), self._quota(mine)
        after = self._used(mine).plus(self._taker.need)
        within = all(own[number] < 0 or after[number] <= own[number] for number in self._asked)
        return within and any(0 <= quota[number] < used[number] for number in self._asked)

    def _is_fuller(self, mine: QueueName, theirs: QueueName, left: Amounts) -> bool:
        """The taker's side ends above its share, and no less so than the other side."""
        share, other = self._share(mine), self._share(theirs)
        after = self._used(mine).plus(self._taker.need)
        return any(
            after[number] > share[number]
            and (share[number] <= 0 or other[number] > 0)
            and after[number] * other[number] >= left[number] * share[number]
            for number in self._asked
        )

    def _exceeds_share(self, name: QueueName) -> bool:
        return self._exceeds(self._used(name), self._share(name))

    def _exceeds(self, used: Amounts, share: Amounts) -> bool:
        return any(used[number] > share[number] for number in self._asked)

    def _used(self, name: QueueName) -> Amounts:
        return self._accounts.used(name)

    def _share(self, name: QueueName) -> Amounts:
        return self._shares.get(name, NOTHING)

    def _quota(self, name: QueueName) -> tuple[int, ...]:
        return tuple(allowance.quota for allowance in self._tree.queues[name].allowances)


def _preempt_runtime(tree: QueueTree, queue: QueueName) -> int | None:
    return _nearest(tree, queue, lambda found: found.preempt_min_runtime)


def _reclaim_runtime(tree: QueueTree, queue: QueueName) -> int | None:
    return _nearest(tree, queue, lambda found: found.reclaim_min_runtime)


def _nearest(tree: QueueTree, queue: QueueName, setting: Callable[[Queue], int | None]) -> int | None:
    """Of the nearest queue upwards that sets it."""
    for name in tree.path(queue) if queue in tree else ():
        found = setting(tree.queues[name])
        if found is not None:
            return found
    return None


def _unless_young(group: RunningGroup, runtime: int | None, now: int) -> Extent:
    started = group.gang.started
    if runtime is None or started is None or now >= started + runtime:
        return Extent.EVERYTHING
    return Extent.SPARE if group.spare else Extent.NOTHING
