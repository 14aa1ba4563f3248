"""By how much quotas and limits would have to grow so that a queue admits more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from apportion.apis.identities import QueueName
from apportion.core.queues.accounts import Accounts
from apportion.core.queues.amounts import RESOURCES, Amounts
from apportion.core.queues.gates import Gate
from apportion.core.queues.tree import QueueTree


class Raise(NamedTuple):
    """One quota or limit, in the units of `Amounts`."""

    queue: QueueName
    gate: Gate
    resource: str
    before: int
    after: int


def needed(accounts: Accounts, queue: QueueName, need: Amounts, *, fixed: bool) -> tuple[Raise, ...]:
    """The least of every queue upwards so that so much more passes; `fixed`: by pods that are not preemptible."""
    found: list[Raise] = []
    for name in accounts.tree.path(queue):
        known = accounts.tree.queues.get(name)
        if known is None:
            continue
        used, held = accounts.used(name), accounts.fixed(name)
        for number, (resource, allowance) in enumerate(zip(RESOURCES, known.allowances, strict=True)):
            if need[number] <= 0:
                continue
            with_it, fixed_with_it = used[number] + need[number], held[number] + need[number]
            if 0 <= allowance.limit < with_it:
                found.append(Raise(name, Gate.LIMIT, resource, allowance.limit, with_it))
            if fixed and 0 <= allowance.quota < fixed_with_it:
                found.append(Raise(name, Gate.QUOTA, resource, allowance.quota, fixed_with_it))
    return tuple(found)


def applied(tree: QueueTree, raises: Iterable[Raise]) -> QueueTree:
    """The tree with these amounts."""
    changed = dict(tree.queues)
    for each in raises:
        queue = changed[each.queue]
        allowance = queue.allowances[RESOURCES.index(each.resource)]._replace(**{str(each.gate): each.after})
        changed[each.queue] = msgspec.structs.replace(queue, **{each.resource: allowance})
    return tree.with_queues(changed)
