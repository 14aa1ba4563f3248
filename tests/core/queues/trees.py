"""Random trees of queues: small numbers that often meet, and extremes."""

from __future__ import annotations

import random
from fractions import Fraction

from apportion.core.queues.fair_shares import QueueDemand

DEEPEST = 5
TIMES = ("", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
WEIGHTS = (
    0,
    1,
    1,
    1,
    2,
    3,
    7,
    Fraction(1, 2),
    Fraction(1, 10),
    Fraction(1, 3),
    Fraction(10**300),
    Fraction(1, 10**300),
)
AMOUNTS = (0, 1, 2, 3, 5, 10, 100, 500, 999, 1000, 1001, 2500, 4000, 10**15)


def tree(dice: random.Random) -> tuple[int, list[QueueDemand]]:
    """A total and its queues, in any order."""
    queues: list[QueueDemand] = []
    parents: list[tuple[str | None, int]] = [(None, 0)]
    names = [f"q{number}" for number in range(dice.choice((1, 2, 3, 5, 8, 13, 21)))]
    dice.shuffle(names)
    for name in names:
        parent, depth = dice.choice(parents)
        queues.append(queue(dice, name, parent))
        if depth + 1 < DEEPEST:
            parents += [(name, depth + 1)] * dice.choice((1, 1, 3))
    dice.shuffle(queues)
    return amount(dice), queues


def queue(dice: random.Random, name: str, parent: str | None) -> QueueDemand:
    return QueueDemand(
        name=name,
        parent=parent,
        quota=dice.choice((0, 0, -1, amount(dice), amount(dice))),
        limit=dice.choice((-1, -1, amount(dice))),
        weight=dice.choice(WEIGHTS),
        priority=dice.choice((100, 100, 100, 1, 200, -5)),
        request=amount(dice),
        created=dice.choice(TIMES),
    )


def amount(dice: random.Random) -> int:
    return dice.choice((dice.choice(AMOUNTS), dice.randrange(20), dice.randrange(10_000)))
