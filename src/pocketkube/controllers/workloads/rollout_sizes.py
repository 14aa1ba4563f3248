"""The arithmetic of a Deployment's rollout: pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

_LONGEST_PERCENT = 9  # digits


@dataclass(frozen=True)
class Bounds:
    """How many pods may exist above, and how many may be missing below, the wanted number."""

    surge: int
    unavailable: int


@dataclass(frozen=True)
class Old:
    """An earlier ReplicaSet: its size and how many of its pods are available. Oldest first in lists."""

    name: str
    replicas: int
    available: int


def bounds(replicas: int, surge: str | int, unavailable: str | int) -> Bounds:
    """Percentages: surge is rounded up, unavailable down; never both zero."""
    above, below = _amount(surge, replicas, up=True), _amount(unavailable, replicas, up=False)
    if above == 0 and below == 0:
        below = 1
    return Bounds(above, min(below, replicas) if replicas else below)


def next_size(replicas: int, limit: Bounds, new: int, old_total: int) -> int:
    """The size of the new ReplicaSet now."""
    if new >= replicas:
        return replicas
    room = replicas + limit.surge - (new + old_total)
    return min(replicas, new + max(0, room))


def shrink(replicas: int, limit: Bounds, new: int, new_available: int, olds: list[Old]) -> dict[str, int]:
    """New sizes of the old ReplicaSets: pods that are not available go first, then as many as may be missing."""
    total = new + sum(old.replicas for old in olds)
    least = replicas - limit.unavailable
    may_go = total - least - (new - new_available)
    sizes = {old.name: old.replicas for old in olds}
    for old in olds:
        broken = min(max(0, may_go), old.replicas - old.available, sizes[old.name])
        if broken > 0:
            sizes[old.name] -= broken
            may_go -= broken
    available = new_available + sum(min(sizes[old.name], old.available) for old in olds)
    spare = available - least
    for old in olds:
        gone = min(max(0, spare), sizes[old.name])
        sizes[old.name] -= gone
        spare -= gone
    return {old.name: sizes[old.name] for old in olds if sizes[old.name] != old.replicas}


@dataclass(frozen=True)
class Share:
    """One of several ReplicaSets that grow or shrink together. `most`: how many pods there could be before."""

    name: str
    replicas: int
    most: int
    made: tuple[str, str]


def proportional(replicas: int, limit: Bounds, shares: list[Share]) -> dict[str, int]:
    """New sizes when the wanted number changes in the middle of a rollout: each keeps its part of the whole."""
    allowed = replicas + limit.surge if replicas else 0
    to_add = allowed - sum(share.replicas for share in shares)
    ordered = sorted(shares, key=lambda share: share.made, reverse=to_add > 0)
    ordered.sort(key=lambda share: -share.replicas)
    sizes: dict[str, int] = {}
    added = 0
    for share in ordered:
        part = _part(share, replicas, allowed)
        part = min(part, to_add - added) if to_add > 0 else max(part, to_add - added)
        sizes[share.name] = share.replicas + part
        added += part
    if ordered:
        sizes[ordered[0].name] = max(0, sizes[ordered[0].name] + to_add - added)
    return sizes


def _part(share: Share, replicas: int, allowed: int) -> int:
    if not replicas or not share.most:
        return -share.replicas if not replicas else 0
    return math.floor(share.replicas * allowed / share.most + 0.5) - share.replicas


def _amount(value: str | int, total: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    percent = int(value.rstrip("%")[:_LONGEST_PERCENT] or 0)
    return -(-percent * total // 100) if up else percent * total // 100
