"""What queues hold, at every level, kept in step with the fleet.

A charge is what one pod or reservation counts for. Pods that are terminating are not charged: what they still hold is
as good as free for their queue, and reserved for somebody else.
"""

from __future__ import annotations

from typing import NamedTuple

from apportion.apis.identities import QueueName
from apportion.core.queues.amounts import NOTHING, Amounts
from apportion.core.queues.tree import QueueTree

FOREIGN = QueueName("")  # what pods of other schedulers hold is no queue's


class Charge(NamedTuple):
    """`fixed`: the pod is not preemptible."""

    queue: QueueName
    amounts: Amounts
    fixed: bool = False


class Accounts:
    """Charges by key, and their sums."""

    def __init__(self) -> None:
        self.tree = QueueTree()
        self.version = 0  # grows with every change of a sum
        self._charges: dict[str, Charge] = {}
        self._used: dict[QueueName, Amounts] = {}
        self._fixed: dict[QueueName, Amounts] = {}
        self.everything = NOTHING  # all charges together

    def used(self, queue: QueueName) -> Amounts:
        """By the queue and all below it."""
        return self._used.get(queue, NOTHING)

    def fixed(self, queue: QueueName) -> Amounts:
        """The same by pods that are not preemptible."""
        return self._fixed.get(queue, NOTHING)

    def charge(self, key: str) -> Charge | None:
        return self._charges.get(key)

    def set_tree(self, tree: QueueTree) -> None:
        self.tree = tree
        charges, self._charges = self._charges, {}
        self._used.clear()
        self._fixed.clear()
        self.everything = NOTHING
        for key, charge in charges.items():
            self.set_charge(key, charge)
        self.version += 1

    def set_charge(self, key: str, charge: Charge | None) -> None:
        before = self._charges.get(key)
        if before == charge:
            return
        self.version += 1
        if before is not None:
            del self._charges[key]
            self._book(before, -1)
        if charge is not None:
            self._charges[key] = charge
            self._book(charge, 1)

    def record(self) -> list[object]:
        return [[key, self._charges[key]] for key in sorted(self._charges)]

    def _book(self, charge: Charge, sign: int) -> None:
        gpu, cpu, memory = charge.amounts
        self.everything = self.everything.plus(charge.amounts) if sign > 0 else self.everything.minus(charge.amounts)
        books = (self._used, self._fixed) if charge.fixed else (self._used,)
        for queue in self.tree.path(charge.queue):
            for book in books:
                has = book.get(queue, NOTHING)
                left = Amounts(has.gpu + sign * gpu, has.cpu + sign * cpu, has.memory + sign * memory)
                if left == NOTHING:
                    book.pop(queue, None)
                else:
                    book[queue] = left
