"""What a queue does not allow, wherever the pods would run: more than a limit, or non-preemptible pods above quota."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import NamedTuple

from apportion.apis.identities import QueueName
from apportion.core.queues.accounts import Accounts, Charge
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


def against(
    accounts: Accounts, queue: QueueName, need: Amounts, *, fixed: bool, kept: Collection[Charge] = ()
) -> Closed | None:
    """The first gate on the way up that so much more does not pass; `fixed`: by pods that are not preemptible. `kept`
    are places that are charged for these pods already: they count once."""
    charged, charged_fixed = (
        _by_queue(accounts, queue, ((each.queue, each.amounts) for each in charges))
        for charges in (kept, [each for each in kept if each.fixed])
    )
    for name in accounts.tree.path(queue):
        used, held = accounts.used(name).minus(charged[name]), accounts.fixed(name).minus(charged_fixed[name])
        closed = _closed(accounts, name, need, used, held, NOTHING, fixed=fixed)
        if closed is not None:
            return closed
    return None


def after(accounts: Accounts, queue: QueueName, need: Amounts, lost: Iterable[Lost], *, fixed: bool) -> Closed | None:
    """The same once preemptible pods are gone: their queues, and what they held."""
    freed = _by_queue(accounts, queue, lost)
    for name in accounts.tree.path(queue):
        used, held = accounts.used(name), accounts.fixed(name)
        closed = _closed(accounts, name, need, used, held, freed[name], fixed=fixed)
        if closed is not None:
            return closed
    return None


def _by_queue(accounts: Accounts, queue: QueueName, parts: Iterable[Lost]) -> dict[QueueName, Amounts]:
    """What these amounts are for each queue of a path."""
    found = dict.fromkeys(accounts.tree.path(queue), NOTHING)
    for other, amounts in parts:
        for name in accounts.tree.path(other):
            if name in found:
                found[name] = found[name].plus(amounts)
    return found


def _closed(
    accounts: Accounts, name: QueueName, need: Amounts, used: Amounts, held: Amounts, freed: Amounts, *, fixed: bool
) -> Closed | None:
    """The gate of one queue, of which so much is used, and `held` by pods that are not preemptible."""
    found = accounts.tree.queues.get(name)
    if found is None:
        return None
    for number, (resource, allowance) in enumerate(zip(RESOURCES, found.allowances, strict=True)):
        more = need[number]
        if more <= 0:
            continue
        if 0 <= allowance.limit < used[number] + more - freed[number]:
            return Closed(Gate.LIMIT, name, resource, more, used[number], allowance.limit)
        if fixed and 0 <= allowance.quota < held[number] + more:
            return Closed(Gate.QUOTA, name, resource, more, held[number], allowance.quota)
    return None
