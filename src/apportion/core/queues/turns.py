"""Whose turn it is: the next group to try, decided anew after every placement.

At each level of the tree a queue below its fair share comes first, then the one with the higher priority, then the one
whose dominant share is lower with the group and without it, then the older one. Within a queue groups have an order of
their own. A placement changes the ranks of the queues on one path only, so a turn costs the depth of the tree.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from apportion.apis.identities import QueueName
from apportion.core.queues.accounts import Accounts
from apportion.core.queues.amounts import NOTHING, Amounts
from apportion.core.queues.fair_shares import UNLIMITED
from apportion.core.queues.shares import Shares

T = TypeVar("T")

_SCALE = 10**9  # parts of a share that are told apart
_NO_SHARE = 1000  # times as dominant as the whole
_ROOT = QueueName("")

Rank = tuple[bool, int, int, int, str, str]


class Turn(NamedTuple, Generic[T]):
    """A group that waits in a queue. `order` is unique within the queue."""

    queue: QueueName
    order: Any
    need: Amounts
    group: T


@dataclass
class _Level(Generic[T]):
    """The queues or groups below one queue that have a turn to come."""

    heap: list[tuple[Any, Any]] = field(default_factory=list)
    ranks: dict[QueueName, tuple[Rank, Turn[T]]] = field(default_factory=dict)


class Turns(Generic[T]):
    """Take with `next`; say `changed` when a queue holds more or less than before, or a group was added."""

    def __init__(self, accounts: Accounts, shares: Shares, total: Amounts, turns: Iterable[Turn[T]] = ()) -> None:
        self._accounts, self._shares, self._total = accounts, shares, total
        self._groups: dict[QueueName, list[tuple[Any, Turn[T]]]] = {}
        self._levels: dict[QueueName, _Level[T]] = {_ROOT: _Level()}
        self._changed: dict[QueueName, None] = {}  # queues to be ranked anew before the next turn
        for turn in turns:
            self.add(turn)

    def add(self, turn: Turn[T]) -> None:
        heapq.heappush(self._groups.setdefault(turn.queue, []), (turn.order, turn))
        self.changed(turn.queue)

    def next(self) -> Turn[T] | None:
        """The group whose turn it is; it has no further turn."""
        for queue in self._changed:
            self._rank_anew(queue)
        self._changed.clear()
        turn = self._first(_ROOT)
        if turn is not None:
            heapq.heappop(self._groups[turn.queue])
            self.changed(turn.queue)
        return turn

    def changed(self, queue: QueueName) -> None:
        self._changed[queue] = None

    def _rank_anew(self, queue: QueueName) -> None:
        """The queue and those above it."""
        groups = self._groups.get(queue)
        turn = groups[0][1] if groups else None
        path = self._accounts.tree.path(queue)
        for name, parent in zip(path, (*path[1:], _ROOT), strict=True):
            if name != queue:
                turn = self._first(name)
            level = self._levels.setdefault(parent, _Level())
            if turn is None:
                level.ranks.pop(name, None)
                continue
            rank = self._rank(name, turn.need)
            level.ranks[name] = (rank, turn)
            heapq.heappush(level.heap, (rank, name))

    def _first(self, queue: QueueName) -> Turn[T] | None:
        level = self._levels.get(queue)
        if level is None:
            return None
        while level.heap:
            rank, name = level.heap[0]
            known = level.ranks.get(name)
            if known is not None and known[0] == rank:
                return known[1]
            heapq.heappop(level.heap)
        return None

    def _rank(self, name: QueueName, need: Amounts) -> Rank:
        queue = self._accounts.tree.queues.get(name)
        used, share = self._accounts.used(name), self._shares.get(name, NOTHING)
        asked = [number for number, amount in enumerate(need) if amount > 0]
        below = all(used[number] < share[number] for number in asked)
        if queue is None:
            return (not below, 0, 0, 0, "", name)
        entitled = [
            _entitled(allowance.quota, allowance.limit, share[number], self._total[number])
            for number, allowance in enumerate(queue.allowances)
        ]
        with_group = max((_part(used[n] + need[n], entitled[n]) for n in asked), default=0)
        now = max((_part(used[n], entitled[n]) for n in asked), default=0)
        return (not below, -queue.priority, with_group, now, queue.created, name)


def _entitled(quota: int, limit: int, share: int, total: int) -> int:
    """What the use of a queue is measured by."""
    most = max(total if quota == UNLIMITED else quota, share)
    return most if limit == UNLIMITED else min(most, limit)


def _part(amount: int, entitled: int) -> int:
    return amount * _SCALE // entitled if entitled > 0 else amount * _SCALE * _NO_SHARE
