"""A plan: who is evicted so that the pods of a group get a place, and where those go who are moved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from apportion.apis.identities import PodUID
from apportion.apis.request import Request
from apportion.core.evictions.running_group import RunningGroup, RunningPod
from apportion.core.placement.node_placement import NodePlacement

Pods = tuple[RunningPod, ...]
Placements = tuple[tuple[Request, NodePlacement], ...]
Loss = tuple[tuple[int, ...], int, int, tuple[int, ...]]
Cost = tuple[tuple[int, ...], int, int, tuple[int, ...], int]


@dataclass(frozen=True)
class Plan:
    """`placements` are those of the group's pods; `moves` are evicted pods with their next place."""

    evicted: Pods
    placements: Placements
    moves: tuple[tuple[RunningPod, NodePlacement], ...] = ()

    @property
    def lost(self) -> Pods:
        """Evicted pods without another place."""
        if not self.moves:
            return self.evicted
        moved = {pod.uid for pod, _ in self.moves}
        return tuple(pod for pod in self.evicted if pod.uid not in moved)

    @property
    def cost(self) -> Cost:
        """The lower the better: the most important victim, then their number, groups that end, the newest; moves."""
        return (*loss(self.lost), len(self.moves))


def loss(lost: Iterable[RunningPod]) -> Loss:
    pods = tuple(lost)
    if len(pods) == 1:
        (pod,) = pods
        return pod.group.level, 1, not pod.group.spared_by({pod.uid}), (pod.age,)
    level = max((pod.group.level for pod in pods), default=())
    ages = tuple(sorted((pod.age for pod in pods), reverse=True))
    return level, len(pods), len(ended_groups(pods)), ages


def ended_groups(lost: Iterable[RunningPod]) -> list[RunningGroup]:
    """Groups that do not keep their minimum."""
    by_group: dict[str, tuple[RunningGroup, set[PodUID]]] = {}
    for pod in lost:
        by_group.setdefault(pod.group.key, (pod.group, set()))[1].add(pod.uid)
    return [group for group, uids in by_group.values() if not group.spared_by(uids)]
