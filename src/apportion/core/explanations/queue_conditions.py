"""What is to be said of a queue in its status: conditions that are true, with their numbers and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from apportion.apis.custom_resources.queues import INVALID, ORPHAN, OVER_QUOTA, OVERSUBSCRIBED
from apportion.apis.identities import QueueName
from apportion.core.explanations import queue_reasons
from apportion.core.queues import quantities
from apportion.core.queues.accounts import Accounts
from apportion.core.queues.amounts import NOTHING, RESOURCES, Amounts
from apportion.core.queues.fair_shares import UNLIMITED
from apportion.core.queues.shares import Shares
from apportion.core.queues.tree import Problem, Queue

TYPES = (ORPHAN, OVER_QUOTA, OVERSUBSCRIBED, INVALID)


class Condition(NamedTuple):
    """A condition that is true."""

    type: str
    reason: str
    message: str


def conditions(accounts: Accounts, shares: Shares, total: Amounts, name: QueueName) -> Iterator[Condition]:
    """At most one of each type. `total` is what the root queues share."""
    tree = accounts.tree
    if name in tree.invalid:
        yield Condition(INVALID, "InvalidField", tree.invalid[name])
    if name not in tree:
        return
    queue = tree.queues[name]
    match tree.broken(name):
        case Problem.NO_PARENT:
            yield Condition(ORPHAN, "ParentNotFound", queue_reasons.fault_of(tree, name))
        case Problem.CYCLE:
            yield Condition(INVALID, "Cycle", queue_reasons.fault_of(tree, name))
        case _:
            pass
    yield from _over_quota(queue, accounts.used(name))
    if tree.children(name):
        yield from _oversubscribed(accounts, shares, name, shares.get(name, NOTHING), "child queues")
    elif not queue.parent:
        yield from _oversubscribed(accounts, shares, queue.parent, total, "root queues")


def _over_quota(queue: Queue, used: Amounts) -> Iterator[Condition]:
    for resource, allowance, amount in zip(RESOURCES, queue.allowances, used, strict=True):
        if UNLIMITED != allowance.quota < amount:
            text = quantities.used_of(resource, amount, allowance.quota, "quota")
            yield Condition(OVER_QUOTA, "AboveQuota", f"{text} in use: other queues can reclaim what is above it")
            return


def _oversubscribed(
    accounts: Accounts, shares: Shares, parent: QueueName, divided: Amounts, whose: str
) -> Iterator[Condition]:
    """Of the queues below one, or of the root queues."""
    below = [shares[child] for child in accounts.tree.children(parent) if child in shares]
    for number, resource in enumerate(RESOURCES):
        together = sum(share[number] for share in below)
        if together > divided[number]:
            text = quantities.used_of(resource, together, divided[number])
            message = f"{whose} are guaranteed {text}: pods are served in order of arrival until quotas are reduced"
            yield Condition(OVERSUBSCRIBED, "QuotasOfChildren" if parent else "QuotasOfRootQueues", message)
            return
