"""What a queue does not allow, wherever the pods would run: more than a limit, or non-preemptible pods above quota."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from apportion.apis.identities import QueueName
from apportion.core.queues.accounts import Accounts
from apportion.core.queues.amounts import NOTHING, RESOURCES, Amounts


class Gate(StrEnum):
    LIMIT = "limit"
    QUOTA = "quota"


Lost = tuple[QueueName, Amounts]


class Closed(NamedTuple):
    """A gate that a group does not pass: `queue` is the one of its path that stops it."""

    gate: Gate
    queue: QueueName
    resource: str
    need: int
    used: int
    most: int


def against(accounts: Accounts, queue: QueueName, need: Amounts, *, fixed: bool) -> Closed | None:
    """The first gate on the way up that so much more does not pass; `fixed`: by pods that are not preemptible."""
    return after(accounts, queue, need, (), fixed=fixed)


def after(accounts: Accounts, queue: QueueName, need: Amounts, lost: Iterable[Lost], *, fixed: bool) -> Closed | None:
    """The same once preemptible pods are gone: their queues, and what they held."""
    path = accounts.tree.path(queue)
    freed = dict.fromkeys(path, NOTHING)
    for other, amounts in lost:
        for name in accounts.tree.path(other):
            if name in freed:
                freed[name] = freed[name].plus(amounts)
    for name in path:
        closed = _closed(accounts, name, need, need.minus(freed[name]), need, fixed=fixed)
        if closed is not None:
            return closed
    return None


def _closed(
    accounts: Accounts, name: QueueName, asked: Amounts, more: Amounts, more_fixed: Amounts, *, fixed: bool
) -> Closed | None:
    """The gate of one queue: `more` is added to what it uses, `more_fixed` to what non-preemptible pods use of it."""
    found = accounts.tree.queues.get(name)
    if found is None:
        return None
    used, held = accounts.used(name), accounts.fixed(name)
    for number, (resource, allowance) in enumerate(zip(RESOURCES, found.allowances, strict=True)):
        need = asked[number]
        if need <= 0:
            continue
        if 0 <= allowance.limit < used[number] + more[number]:
            return Closed(Gate.LIMIT, name, resource, need, used[number], allowance.limit)
        if fixed and 0 <= allowance.quota < held[number] + more_fixed[number]:
            return Closed(Gate.QUOTA, name, resource, need, held[number], allowance.quota)
    return None
