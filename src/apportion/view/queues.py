"""Queues as the tree by which the fleet is shared out.

A queue whose numbers cannot be read is not in the tree, so its pods wait; `problems` says what is wrong with it. In a
cluster without any queue there is only the default queue, and nothing is limited.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from apportion.apis.custom_resources import queues
from apportion.apis.custom_resources.queues import QueueError, ResourceSettings
from apportion.apis.identities import QueueName
from apportion.apis.request import DEFAULT_QUEUE
from apportion.core.cluster_changes import Happened
from apportion.core.fleet import Fleet
from apportion.core.queues.tree import FREE, Allowance, Queue, QueueTree
from apportion.view.change_log import ChangeLog

_MILLISECONDS = 1000
_WITHOUT_QUEUES = QueueTree([Queue(DEFAULT_QUEUE, gpu=FREE)])


class Queues:
    """Feeds queues into the fleet's accounts, and knows them by name. `hidden`: the reader may not see them."""

    def __init__(self, fleet: Fleet, changes: ChangeLog) -> None:
        self.hidden = False
        self._accounts = fleet.accounts
        self._changes = changes
        self._objects: dict[QueueName, queues.Queue] = {}
        self._readable: dict[QueueName, Queue] = {}
        self._problems: dict[QueueName, QueueError] = {}
        self._accounts.set_tree(_WITHOUT_QUEUES)

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, name: QueueName) -> queues.Queue | None:
        return self._objects.get(name)

    @property
    def objects(self) -> Mapping[QueueName, queues.Queue]:
        return self._objects

    @property
    def problems(self) -> Mapping[QueueName, QueueError]:
        """Queues that cannot be used, because a field of theirs cannot be read."""
        return self._problems

    def changed(self, old: queues.Queue | None, new: queues.Queue | None) -> None:
        self.all_changed(((old, new),))

    def all_changed(self, changes: Iterable[tuple[queues.Queue | None, queues.Queue | None]]) -> None:
        """The same for several changes, which make one new tree."""
        changed = False
        for old, new in changes:
            subject = new or old
            assert subject is not None
            changed = self._set(QueueName(subject.metadata.name), new) or changed
        if changed:
            invalid = {name: str(error) for name, error in self._problems.items()}
            self._accounts.set_tree(QueueTree(self._readable.values(), invalid) if self._objects else _WITHOUT_QUEUES)
            self._changes.note(Happened.QUEUE_CHANGED)

    def _set(self, name: QueueName, queue: queues.Queue | None) -> bool:
        """True if the tree is another one."""
        before = self._readable.pop(name, None), str(self._problems.pop(name, "")), name in self._objects
        self._objects.pop(name, None)
        if queue is not None:
            self._objects[name] = queue
            try:
                self._readable[name] = core_queue(queue)
            except QueueError as error:
                self._problems[name] = error
        return before != (self._readable.get(name), str(self._problems.get(name, "")), name in self._objects)


def core_queue(queue: queues.Queue) -> Queue:
    """As decisions use it; raises QueueError."""
    settings = queues.read(queue)
    return Queue(
        QueueName(settings.name),
        QueueName(settings.parent),
        settings.priority,
        queue.metadata.creation_timestamp or "",
        _allowance(settings.gpu),
        _allowance(settings.cpu),
        _allowance(settings.memory),
        _seconds(settings.preempt_min_runtime),
        _seconds(settings.reclaim_min_runtime),
    )


def _allowance(resource: ResourceSettings) -> Allowance:
    return Allowance(resource.quota, resource.limit, resource.weight)


def _seconds(milliseconds: int | None) -> int | None:
    """Rounded up: what is protected for a moment is protected."""
    return None if milliseconds is None else -(-milliseconds // _MILLISECONDS)
