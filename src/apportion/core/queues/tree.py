"""Queues and their tree. A queue that cannot be used says why; the others are not affected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

import msgspec

from apportion.apis.identities import QueueName
from apportion.core.queues.fair_shares import DEFAULT_PRIORITY, UNLIMITED

TOP = QueueName("")


class Allowance(NamedTuple):
    """What a queue is entitled to of one resource; -1 is unlimited."""

    quota: int = 0
    limit: int = UNLIMITED
    weight: Fraction | int = 1


FREE = Allowance(UNLIMITED, UNLIMITED)


class Queue(msgspec.Struct, frozen=True):
    """One queue. The times protect its groups after they started, in seconds; None: the next queue upwards says."""

    name: QueueName
    parent: QueueName = TOP
    priority: int = DEFAULT_PRIORITY
    created: str = ""
    gpu: Allowance = Allowance()
    cpu: Allowance = FREE
    memory: Allowance = FREE
    preempt_min_runtime: int | None = None
    reclaim_min_runtime: int | None = None

    @property
    def allowances(self) -> tuple[Allowance, Allowance, Allowance]:
        return self.gpu, self.cpu, self.memory


class Problem(StrEnum):
    """Why pods cannot use a queue."""

    UNKNOWN = "unknown"
    INVALID = "invalid"
    NOT_A_LEAF = "not a leaf"
    NO_PARENT = "missing parent"
    CYCLE = "cycle"


class QueueTree:
    """All queues. Immutable: a change of a queue makes another tree.

    `invalid` are queues that cannot be read, with what is wrong; no pod can use them.
    """

    def __init__(self, queues: Iterable[Queue] = (), invalid: Mapping[QueueName, str] | None = None) -> None:
        self.invalid: Mapping[QueueName, str] = invalid or {}
        self.queues: Mapping[QueueName, Queue] = {
            queue.name: queue for queue in sorted(queues, key=lambda each: each.name)
        }
        self._children: dict[QueueName, list[QueueName]] = {}
        for queue in self.queues.values():
            self._children.setdefault(queue.parent, []).append(queue.name)
        self._paths = {name: self._path(name) for name in self.queues}

    def __contains__(self, name: QueueName) -> bool:
        return name in self.queues

    def children(self, name: QueueName = TOP) -> tuple[QueueName, ...]:
        """Of a queue; the topmost queues without one."""
        return tuple(self._children.get(name, ()))

    def path(self, name: QueueName) -> tuple[QueueName, ...]:
        """The queue and those above it, upwards; as far as they exist."""
        return self._paths.get(name) or (name,)

    def problem(self, name: QueueName) -> Problem | None:
        """Why no pod can use the queue; None if pods can."""
        if name not in self.queues:
            return Problem.INVALID if name in self.invalid else Problem.UNKNOWN
        if name in self._children:
            return Problem.NOT_A_LEAF
        return self.broken(name)

    def broken(self, name: QueueName) -> Problem | None:
        """What is wrong above a queue."""
        top = self.queues[self._paths[name][-1]]
        if not top.parent:
            return None
        return Problem.CYCLE if top.parent in self.queues else Problem.NO_PARENT

    def cycle(self, name: QueueName) -> tuple[QueueName, ...]:
        """The queues of the cycle above a queue, each with its parent next; empty if there is none."""
        path = self.path(name)
        again = self.queues[path[-1]].parent if path[-1] in self.queues else TOP
        return path[path.index(again) :] if again in path else ()

    def with_queues(self, changed: Mapping[QueueName, Queue]) -> QueueTree:
        """The tree with other numbers of some queues, whose parents are the same."""
        return QueueTree((changed.get(name, queue) for name, queue in self.queues.items()), self.invalid)

    def _path(self, name: QueueName) -> tuple[QueueName, ...]:
        found = {name: None}
        above = self.queues[name].parent
        while above in self.queues and above not in found:
            found[above] = None
            above = self.queues[above].parent
        return tuple(found)
