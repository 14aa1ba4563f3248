"""How much of one resource each queue is entitled to: its fair share.

The root queues divide the total, and the children of a queue divide its fair share. Among siblings, each first gets
its quota, as far as it can use it. The rest is divided by queue priority, highest first, and within one priority by
weight: weighted max-min, so what one queue cannot use goes to the others, and then to the next priority. Quotas that
exceed the total together are not reduced.

Amounts are integers: milli-GPU, milli-CPU or bytes. Weights are exact, and no float is involved. Only the last units,
less than one for each queue, are given by largest remainder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from math import lcm

import msgspec

from apportion.apis.errors import InputError
from apportion.apis.identities import QueueName

UNLIMITED = -1
DEFAULT_PRIORITY = 100

_MOST_SHOWN = 10  # queues of a cycle


class QueueDemand(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with its numbers for one resource. Of equal queues the older one (`created`, then `name`) is first."""

    name: QueueName
    parent: QueueName | None = None
    quota: int = 0  # or UNLIMITED
    limit: int = UNLIMITED
    weight: int | Fraction = 1
    priority: int = DEFAULT_PRIORITY
    request: int = 0  # of its running and pending pods, without those of its children
    created: str = ""  # as Kubernetes writes times

    @property
    def requestable(self) -> int:
        """What it can use."""
        return self.request if self.limit == UNLIMITED else min(self.limit, self.request)


Family = tuple[QueueName | None, list[QueueDemand]]  # a parent and its children; the parent of roots is None


def fair_shares(total: int, queues: Iterable[QueueDemand]) -> dict[QueueName, int]:
    """The fair share of every queue of a tree. Raises InputError if the queues are not a tree."""
    shares: dict[QueueName, int] = {}
    for parent, children in _with_requests_below(_families(list(queues))):
        shares |= divide(total if parent is None else shares[parent], children)
    return shares


def divide(total: int, siblings: Iterable[QueueDemand]) -> dict[QueueName, int]:
    """The fair shares of siblings; their requests include those of their descendants. A negative total counts as 0."""
    total = max(total, 0)
    queues = sorted(siblings, key=lambda queue: -queue.priority)
    shares = {queue.name: _guaranteed(queue, total) for queue in queues}
    left = total - sum(shares.values())
    for _, equals in groupby(queues, key=lambda queue: queue.priority):
        if left <= 0:
            break
        open_to_more = [queue for queue in equals if queue.weight > 0 and queue.requestable > shares[queue.name]]
        missing = {queue.name: queue.requestable - shares[queue.name] for queue in open_to_more}
        for name, amount in _divide_by_weight(left, open_to_more, missing).items():
            shares[name] += amount
            left -= amount
    return shares


def _guaranteed(queue: QueueDemand, total: int) -> int:
    return min(total if queue.quota == UNLIMITED else queue.quota, queue.requestable)


def _divide_by_weight(
    amount: int, queues: Sequence[QueueDemand], missing: Mapping[QueueName, int]
) -> dict[QueueName, int]:
    """Weighted max-min: queues in the order in which they get all that they miss, until one does not."""
    weights = _integer_weights(queues)
    order = sorted(queues, key=lambda queue: Fraction(missing[queue.name], weights[queue.name]))
    weight_left = sum(weights.values())
    given: dict[QueueName, int] = {}
    for position, queue in enumerate(order):
        wanted, weight = missing[queue.name], weights[queue.name]
        if wanted * weight_left > amount * weight:
            return given | _divide_in_proportion(amount, order[position:], weights)
        given[queue.name] = wanted
        amount -= wanted
        weight_left -= weight
    return given


def _integer_weights(queues: Iterable[QueueDemand]) -> dict[QueueName, int]:
    """Integers in the same proportion."""
    denominator = lcm(*(queue.weight.denominator for queue in queues))
    return {queue.name: queue.weight.numerator * (denominator // queue.weight.denominator) for queue in queues}


def _divide_in_proportion(
    amount: int, queues: Sequence[QueueDemand], weights: Mapping[QueueName, int]
) -> dict[QueueName, int]:
    """All of the amount. Each queue misses more than its exact part, so one unit more is never too much."""
    weight = sum(weights[queue.name] for queue in queues)
    parts = {queue.name: divmod(amount * weights[queue.name], weight) for queue in queues}
    given = {name: part for name, (part, _) in parts.items()}
    order = sorted(queues, key=lambda queue: (-parts[queue.name][1], queue.created, queue.name))
    for queue in order[: amount - sum(given.values())]:
        given[queue.name] += 1
    return given


def _with_requests_below(families: Sequence[Family]) -> list[Family]:
    """A queue with children also requests what these can use."""
    usable: dict[QueueName | None, int] = {}
    found: list[Family] = []
    for parent, children in reversed(families):
        queues = [
            msgspec.structs.replace(queue, request=queue.request + usable[queue.name])
            if queue.name in usable
            else queue
            for queue in children
        ]
        usable[parent] = sum(queue.requestable for queue in queues)
        found.append((parent, queues))
    return found[::-1]


def _families(queues: Sequence[QueueDemand]) -> list[Family]:
    """All siblings with their parent, from the roots downwards."""
    children: dict[QueueName | None, list[QueueDemand]] = {None: []}
    parents: dict[QueueName, QueueName | None] = {}
    for queue in queues:
        if queue.name in parents:
            raise InputError(f"queues.{queue.name}.name", queue.name, "is the name of two queues: rename one of them")
        parents[queue.name] = queue.parent
        children.setdefault(queue.parent, []).append(queue)
    for name, parent in parents.items():
        if parent is not None and parent not in parents:
            raise InputError(f"queues.{name}.parent", parent, "does not exist: add this queue, or remove the parent")
    order: list[QueueName | None] = [None]
    for parent in order:  # grows
        order += [queue.name for queue in children[parent] if queue.name in children]
    if len(order) < len(children):
        raise _cycle(parents, min(parents.keys() - {queue.name for parent in order for queue in children[parent]}))
    return [(parent, children[parent]) for parent in order]


def _cycle(parents: Mapping[QueueName, QueueName | None], name: QueueName) -> InputError:
    """The ancestors of this queue lead into a cycle."""
    path = {name: None}
    while (parent := parents[name]) is not None and parent not in path:
        path[parent] = None
        name = parent
    assert parent is not None
    names = list(path)
    cycle = [*names[names.index(parent) :], parent]
    listed = " -> ".join(cycle[:_MOST_SHOWN]) + (" -> ..." if len(cycle) > _MOST_SHOWN else "")
    return InputError(f"queues.{parent}.parent", cycle[1], f"is a cycle ({listed}): remove the parent of one of them")
