"""The best victims by looking at every set of them, for small clusters of whole GPUs and shares and flat queues.

Written from rules Q05 to Q07 alone; it shares no code with what it checks. Amounts are in milli-GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True)
class Victim:
    """A pod that runs: `devices` are (device, milli) pairs."""

    name: str
    group: str
    queue: str
    priority: int
    devices: tuple[tuple[str, int], ...]
    budgets: tuple[str, ...] = ()

    @property
    def milli(self) -> int:
        return sum(milli for _, milli in self.devices)


@dataclass(frozen=True)
class FlatQueue:
    name: str
    priority: int
    quota: int
    limit: int
    share: int
    used: int


@dataclass(frozen=True)
class Problem:
    """`wants` are the members of the taker: whole GPUs as multiples of 1000, shares below."""

    devices: dict[str, dict[str, int]]  # node -> device -> milli that nobody who can go holds
    victims: tuple[Victim, ...]
    minimums: dict[str, int]  # of groups
    queues: dict[str, FlatQueue]
    allowed: dict[str, int]  # by budgets
    taker: str  # its queue
    priority: int
    wants: tuple[int, ...]


Rule = Callable[[Problem, Sequence[Victim]], bool]


def best(problem: Problem) -> tuple[tuple[int, int], int] | None:
    """The level and number of the best victims: by reclaim if possible, else by preemption; None if neither is."""
    for rule in (_reclaimable, _preemptible):
        found = [cost for chosen, cost in _sets(problem, rule) if _fits(problem, chosen) and _needed(problem, chosen)]
        if found:
            return min(found)
    return None


def _needed(problem: Problem, chosen: Sequence[Victim]) -> bool:
    """Without any one of them, or of their groups, there is no room."""
    for victim in chosen:
        for fewer in (
            [each for each in chosen if each is not victim],
            [each for each in chosen if each.group != victim.group],
        ):
            if _whole(problem, fewer) and _limits(problem, fewer) and _fits(problem, fewer):
                return False
    return True


def _sets(problem: Problem, rule: Rule) -> Iterator[tuple[tuple[Victim, ...], tuple[tuple[int, int], int]]]:
    candidates = [victim for victim in problem.victims if len(victim.budgets) < 2]
    for size in range(len(candidates) + 1):
        for chosen in combinations(candidates, size):
            if rule(problem, chosen) and all(each(problem, chosen) for each in (_whole, _budgeted, _limits)):
                levels = [(problem.queues[each.queue].priority, each.priority) for each in chosen]
                yield chosen, (max(levels, default=(0, 0)), len(chosen))


def _whole(problem: Problem, chosen: Sequence[Victim]) -> bool:
    """A group keeps its minimum, or goes as a whole."""
    for group in {each.group for each in chosen}:
        members = [each for each in problem.victims if each.group == group]
        left = len(members) - sum(each.group == group for each in chosen)
        if 0 < left < problem.minimums[group]:
            return False
    return True


def _budgeted(problem: Problem, chosen: Sequence[Victim]) -> bool:
    return all(sum(budget in each.budgets for each in chosen) <= allowed for budget, allowed in problem.allowed.items())


def _limits(problem: Problem, chosen: Sequence[Victim]) -> bool:
    queue = problem.queues[problem.taker]
    freed = sum(each.milli for each in chosen if each.queue == queue.name)
    return queue.limit < 0 or queue.used - freed + sum(problem.wants) <= queue.limit


def _reclaimable(problem: Problem, chosen: Sequence[Victim]) -> bool:
    """Each queue is above before the last of its victims goes, even if that is the smallest."""
    taker, need = problem.queues[problem.taker], sum(problem.wants)
    if taker.used + need > taker.share:
        return False
    within = taker.quota < 0 or taker.used + need <= taker.quota
    for name in {each.queue for each in chosen}:
        queue = problem.queues[name]
        if name == problem.taker:
            return False
        left = queue.used
        for amount in sorted(_units(problem, [each for each in chosen if each.queue == name]), reverse=True):
            above_share = left > queue.share and taker.priority >= queue.priority
            above_quota = within and 0 <= queue.quota < left
            if not (above_share or above_quota):
                return False
            left -= amount
    return True


def _units(problem: Problem, chosen: Sequence[Victim]) -> list[int]:
    """What goes at once: single pods of a group that keeps its minimum, else whole groups."""
    amounts = []
    for group in {each.group for each in chosen}:
        members = [each for each in problem.victims if each.group == group]
        going = [each for each in chosen if each.group == group]
        if len(members) > problem.minimums[group]:
            amounts += [each.milli for each in going]
        else:
            amounts.append(sum(each.milli for each in going))
    return amounts


def _preemptible(problem: Problem, chosen: Sequence[Victim]) -> bool:
    priorities = {each.group: 0 for each in chosen}
    for victim in problem.victims:
        if victim.group in priorities:
            priorities[victim.group] = max(priorities[victim.group], victim.priority)
    if any(each.queue != problem.taker or priorities[each.group] >= problem.priority for each in chosen):
        return False
    queue, more = problem.queues[problem.taker], sum(problem.wants) - sum(each.milli for each in chosen)
    others = [each for each in problem.queues.values() if each.name != queue.name]
    return more <= 0 or queue.used + more <= queue.share or all(each.used >= each.share for each in others)


def _fits(problem: Problem, gone: Sequence[Victim]) -> bool:
    free = {node: dict(devices) for node, devices in problem.devices.items()}
    names = {victim.name for victim in gone}
    for victim in problem.victims:
        if victim.name in names:
            continue
        for device, milli in victim.devices:
            node = device.rpartition("-")[0]
            free[node][device] -= milli
    return _placed(free, list(problem.wants))


def _placed(free: dict[str, dict[str, int]], wants: list[int]) -> bool:
    if not wants:
        return True
    want, *others = wants
    for devices in free.values():
        if want >= 1000:
            idle = [device for device, milli in devices.items() if milli == 1000]
            ways = [tuple(idle[: want // 1000])] if len(idle) >= want // 1000 else []
        else:
            ways = [(device,) for device, milli in devices.items() if milli >= want]
        for way in ways:
            for device in way:
                devices[device] -= min(want, 1000)
            if _placed(free, others):
                return True
            for device in way:
                devices[device] += min(want, 1000)
    return False
