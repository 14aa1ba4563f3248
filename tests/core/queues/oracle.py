"""Fair shares by the definition, slowly: without code of the core, one saturation and one unit after the other."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor
from typing import Any

Queue = Any  # anything with the fields of a QueueDemand


def fair_shares(total: int, queues: Sequence[Queue], parent: str | None = None) -> dict[str, int]:
    siblings = [queue for queue in queues if queue.parent == parent]
    usable = {queue.name: requestable(queue, queues) for queue in siblings}
    shares = divided(total, siblings, usable)
    for queue in siblings:
        shares |= fair_shares(shares[queue.name], queues, queue.name)
    return shares


def requestable(queue: Queue, queues: Sequence[Queue]) -> int:
    demand = queue.request + sum(requestable(child, queues) for child in queues if child.parent == queue.name)
    return demand if queue.limit == -1 or demand < queue.limit else queue.limit


def divided(total: int, siblings: Sequence[Queue], usable: dict[str, int]) -> dict[str, int]:
    shares = {}
    for queue in siblings:
        quota = total if queue.quota == -1 else queue.quota
        shares[queue.name] = min(quota, usable[queue.name])
    for priority in sorted({queue.priority for queue in siblings}, reverse=True):
        left = total - sum(shares.values())
        room = {
            queue.name: usable[queue.name] - shares[queue.name]
            for queue in siblings
            if queue.priority == priority and queue.weight != 0
        }
        if left > 0 and room:
            weights = {queue.name: Fraction(queue.weight) for queue in siblings}
            age = {queue.name: (queue.created, queue.name) for queue in siblings}
            for name, amount in whole_units(filled(left, room, weights), age).items():
                shares[name] += amount
    return shares


def filled(left: int, room: dict[str, int], weights: dict[str, Fraction]) -> dict[str, Fraction]:
    """Water filling: whoever is full at the current level leaves the round, and the level is computed again."""
    exact: dict[str, Fraction] = {}
    rest = Fraction(left)
    while len(exact) < len(room):
        unfilled = [name for name in room if name not in exact]
        level = rest / sum(weights[name] for name in unfilled)
        full = [name for name in unfilled if room[name] <= level * weights[name]]
        for name in full or unfilled:
            exact[name] = Fraction(room[name]) if full else level * weights[name]
        rest -= sum(exact[name] for name in full)
    return exact


def whole_units(exact: dict[str, Fraction], age: dict[str, tuple[str, str]]) -> dict[str, int]:
    """The units that rounding down leaves go to the largest remainders, the older queue first."""
    units = {name: floor(amount) for name, amount in exact.items()}
    while sum(units.values()) < sum(exact.values()):
        behind = max(exact[name] - units[name] for name in exact)
        first = min((name for name in exact if exact[name] - units[name] == behind), key=age.__getitem__)
        units[first] += 1
    return units
