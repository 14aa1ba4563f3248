"""What a queue does not allow, wherever the pods would run: more than a limit, or non-preemptible pods above quota."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from apportion.apis.identities import QueueName
from apportion.core.queues.accounts import Accounts
from apportion.core.queues.amounts import NOTHING, RESOURCES, Amounts


class Gate(StrEnum):
    LIMIT = "limit"
    QUOTA = "quota"


class Closed(NamedTuple):
    """A gate that a group does not pass: `queue` is the one of its path that stops it."""

    gate: Gate
    queue: str
    resource: str
    need: int
    used: int
    most: int


def against(accounts: Accounts, queue: QueueName, need: Amounts, *, fixed: bool) -> Closed | None:
    """The first gate on the way up that so much more does not pass; `fixed`: by pods that are not preemptible."""
    return _first_closed(accounts, queue, need, need, fixed=fixed)


def exceeded(accounts: Accounts, queue: QueueName, added: Amounts, *, fixed: bool) -> Closed | None:
    """The same after it was added."""
    return _first_closed(accounts, queue, added, NOTHING, fixed=fixed)


def _first_closed(accounts: Accounts, queue: QueueName, asked: Amounts, more: Amounts, *, fixed: bool) -> Closed | None:
    for name in accounts.tree.path(queue):
        found = accounts.tree.queues.get(name)
        if found is None:
            continue
        used, held = accounts.used(name), accounts.fixed(name)
        for number, (resource, allowance) in enumerate(zip(RESOURCES, found.allowances, strict=True)):
            need = asked[number]
            if need <= 0:
                continue
            if 0 <= allowance.limit < used[number] + more[number]:
                return Closed(Gate.LIMIT, name, resource, need, used[number], allowance.limit)
            if fixed and 0 <= allowance.quota < held[number] + more[number]:
                return Closed(Gate.QUOTA, name, resource, need, held[number], allowance.quota)
    return None
