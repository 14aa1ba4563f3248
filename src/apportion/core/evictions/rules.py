"""Who may be evicted for whom.

reclaim   a queue within its fair share takes from queues above theirs, or, within its quota, from queues above theirs
preempt   a group takes from groups of its own queue with a lower priority
move      whoever finds another place can be asked to go there, if a controller makes the pod anew
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from apportion.apis.identities import QueueName
from apportion.core.evictions.running_groups import RunningGroup, RunningPod
from apportion.core.queues.accounts import Accounts
from apportion.core.queues.amounts import NOTHING, Amounts
from apportion.core.queues.shares import Shares


class Taker(NamedTuple):
    """Whom the room is made for: pods of one group, what they need together."""

    key: str
    queue: QueueName
    priority: int
    need: Amounts


class Rules(Protocol):
    """`allows` says it of a group; `allows_loss` of all pods together that are lost."""

    moves_only: bool

    def allows(self, group: RunningGroup) -> bool: ...

    def allows_loss(self, lost: Iterable[RunningPod]) -> bool: ...


class Moves:
    """Nobody is lost."""

    moves_only = True

    def __init__(self, taker: Taker) -> None:
        self._taker = taker

    def allows(self, group: RunningGroup) -> bool:
        return group.key != self._taker.key and all(pod.movable for pod in group.pods)

    def allows_loss(self, lost: Iterable[RunningPod]) -> bool:
        return not any(True for _ in lost)


class Preemption:
    moves_only = False

    def __init__(self, taker: Taker) -> None:
        self._taker = taker

    def allows(self, group: RunningGroup) -> bool:
        return group.queue == self._taker.queue and group.level.group < self._taker.priority

    def allows_loss(self, lost: Iterable[RunningPod]) -> bool:  # noqa: ARG002
        return True


class Reclaim:
    """Queues are compared where their paths meet, as they were before anybody was evicted."""

    moves_only = False

    def __init__(self, accounts: Accounts, shares: Shares, taker: Taker) -> None:
        self._tree = accounts.tree
        self._shares = shares
        self._taker = taker
        self._path = self._tree.path(taker.queue)
        self._asked = [number for number, amount in enumerate(taker.need) if amount > 0]
        self._used = {name: accounts.used(name) for name in self._tree.queues}
        self._allowed: dict[QueueName, bool] = {}

    @property
    def open(self) -> bool:
        """The taker stays within its fair share."""
        used, share = self._used.get(self._taker.queue, NOTHING), self._share(self._taker.queue)
        return all(used[number] + self._taker.need[number] <= share[number] for number in self._asked)

    def allows(self, group: RunningGroup) -> bool:
        known = self._allowed.get(group.queue)
        if known is None:
            known = self._allowed[group.queue] = self._allows(group.queue)
        return known

    def allows_loss(self, lost: Iterable[RunningPod]) -> bool:
        """Each was above before it went (so the last of a queue may leave it below); nobody ends up worse off than
        the taker."""
        by_queue: dict[tuple[QueueName, QueueName], dict[str, Amounts]] = {}
        for pod in lost:
            units = by_queue.setdefault(self._meet(pod.group.queue), {})
            key = pod.group.key if not pod.group.spare else pod.uid
            units[key] = units.get(key, NOTHING).plus(pod.amounts)
        return all(self._allows_units(*meet, sorted(units.values())) for meet, units in by_queue.items())

    def _allows_units(self, mine: QueueName, theirs: QueueName, units: list[Amounts]) -> bool:
        left = self._used.get(theirs, NOTHING)
        for amounts in units:
            if not self._is_above(theirs, left, mine):
                return False
            left = left.minus(amounts)
        return not self._is_fuller(mine, theirs, left)

    def _allows(self, queue: QueueName) -> bool:
        if queue == self._taker.queue or queue not in self._tree:
            return False
        mine, theirs = self._meet(queue)
        if not self._is_above(theirs, self._used[theirs], mine):
            return False
        path = self._tree.path(queue)
        for name in path[: path.index(theirs)]:  # below a queue that is above its share, those that are to blame
            siblings = self._tree.children(self._tree.queues[name].parent)
            if any(map(self._exceeds_share, siblings)) and not self._exceeds_share(name):
                return False
        return True

    def _meet(self, queue: QueueName) -> tuple[QueueName, QueueName]:
        """The two siblings at which the ways of taker and victim part."""
        theirs = self._tree.path(queue)
        common = set(self._path) & set(theirs)
        mine = [name for name in self._path if name not in common]
        other = [name for name in theirs if name not in common]
        return mine[-1], other[-1]

    def _is_above(self, theirs: QueueName, used: Amounts, mine: QueueName) -> bool:
        ranks = self._tree.queues[mine].priority, self._tree.queues[theirs].priority
        if ranks[0] >= ranks[1] and self._exceeds(used, self._share(theirs)):
            return True  # what nobody has a quota for goes to the higher priority first
        quota, own = self._quota(theirs), self._quota(mine)
        after = self._used.get(mine, NOTHING).plus(self._taker.need)
        within = all(own[number] < 0 or after[number] <= own[number] for number in self._asked)
        return within and any(0 <= quota[number] < used[number] for number in self._asked)

    def _is_fuller(self, mine: QueueName, theirs: QueueName, left: Amounts) -> bool:
        """The taker's side ends above its share, and no less so than the other side."""
        share, other = self._share(mine), self._share(theirs)
        after = self._used.get(mine, NOTHING).plus(self._taker.need)
        return any(
            after[number] > share[number]
            and other[number] > 0
            and after[number] * other[number] >= left[number] * share[number]
            for number in self._asked
        )

    def _exceeds_share(self, name: QueueName) -> bool:
        return self._exceeds(self._used.get(name, NOTHING), self._share(name))

    def _exceeds(self, used: Amounts, share: Amounts) -> bool:
        return any(used[number] > share[number] for number in self._asked)

    def _share(self, name: QueueName) -> Amounts:
        return self._shares.get(name, NOTHING)

    def _quota(self, name: QueueName) -> tuple[int, ...]:
        return tuple(allowance.quota for allowance in self._tree.queues[name].allowances)
