"""Groups that run below their minimum for too long: what is left of them is evicted, so that they start again whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from apportion.apis.request import Request
from apportion.core.fleet import Fleet
from apportion.core.groups import Gang, Group
from apportion.core.operations import Evict
from apportion.core.statement import Statement

NEVER = -1


def evictions(
    fleet: Fleet, now: int, grace: int, observed: Mapping[str, int] = MappingProxyType({})
) -> list[Statement]:
    """For each group that is below its minimum since `grace` seconds or longer. Nothing is applied to the fleet.
    `observed` is since when groups are that have no PodGroup which says it."""
    if grace == NEVER:
        return []
    return [
        Statement(Group.of(*pods, key=gang.key), tuple(_evictions(fleet, gang, pods, grace)))
        for key, gang in sorted(fleet.gangs.items())
        if (since := observed.get(key) if gang.below_since is None else gang.below_since) is not None
        and now - since >= grace
        and (pods := below_minimum(fleet, key))
    ]


def given_back(fleet: Fleet, key: str, why: str) -> Statement | None:
    """What runs of a group whose minimum could not be started; None if nothing runs, or enough does."""
    gang = fleet.gangs.get(key)
    pods = below_minimum(fleet, key) if gang is not None else []
    if gang is None or not pods:
        return None
    reason = f"{why}, so the group is below its minimum: {lacking(gang, pods)}"
    return Statement(Group.of(*pods, key=key), tuple(Evict(pod, fleet.pod_nodes[pod.uid], reason) for pod in pods))


def below_minimum(fleet: Fleet, key: str) -> list[Request]:
    """The pods of a group that run without its minimum; empty if nothing runs, or enough does."""
    gang = fleet.gangs[key]
    pods = [
        fleet.nodes[fleet.pod_nodes[uid]].pods[uid]
        for uid in sorted(fleet.group_pods.get(key, ()))
        if uid not in fleet.releasing
    ]
    running = Counter(pod.subgroup for pod in pods)
    complete = running.total() >= gang.minimum and all(running[each.name] >= each.minimum for each in gang.subgroups)
    return [] if complete else pods


def _evictions(fleet: Fleet, gang: Gang, pods: list[Request], grace: int) -> Iterator[Evict]:
    reason = f"the group is below its minimum for {grace} s: {lacking(gang, pods)}"
    for pod in pods:
        yield Evict(pod, fleet.pod_nodes[pod.uid], reason)


def lacking(gang: Gang, pods: list[Request]) -> str:
    """How many pods run, and how many should; `pods` are those that run, too few."""
    if len(pods) < gang.minimum:
        return f"{len(pods)} of at least {gang.minimum} pods run"
    running = Counter(pod.subgroup for pod in pods)
    part = next(each for each in gang.subgroups if running[each.name] < each.minimum)
    return f"{running[part.name]} of at least {part.minimum} pods of subgroup {part.name} run"
