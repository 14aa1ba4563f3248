"""Pods and queues as an observer reads them from the API, and what follows from them for queues.

Imports nothing of what is observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
UNLIMITED = -1
NON_PREEMPTIBLE = 100  # from this priority on
MILLI = 1000
STORM = "storm"
GPU = "nvidia.com/gpu"
SLICE = "mig.das.com/"
PLACES = {"1g.5gb": (1, range(7)), "2g.10gb": (2, (0, 2, 4)), "3g.20gb": (4, (0, 4))}  # size and starts on an A100
UNITS = 8


@dataclass(frozen=True)
class ObservedPod:
    """A pod of the storm."""

    uid: str
    namespace: str
    name: str
    queue: str
    resource: str
    node: str
    group: str
    preemptible: bool
    active: bool  # neither terminating nor ended
    nominated: str

    @classmethod
    def of(cls, pod: Json) -> ObservedPod:
        meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
        limits = spec["containers"][0]["resources"].get("limits", {})
        return cls(
            uid=meta["uid"],
            namespace=meta["namespace"],
            name=meta["name"],
            queue=meta["labels"]["kai.scheduler/queue"],
            resource=next((each for each in limits if each == GPU or each.startswith(SLICE)), ""),
            node=spec.get("nodeName", ""),
            group=meta.get("annotations", {}).get("pod-group-name", ""),
            preemptible=spec.get("priority", 0) < NON_PREEMPTIBLE,
            active="deletionTimestamp" not in meta and status.get("phase") not in ("Succeeded", "Failed"),
            nominated=status.get("nominatedNodeName", ""),
        )

    @property
    def profile(self) -> str:
        return self.resource.removeprefix(SLICE)

    @property
    def milli(self) -> int:
        return MILLI if self.resource == GPU else MILLI * PLACES[self.profile][0] // UNITS

    @property
    def running(self) -> bool:
        return self.active and bool(self.node)

    @property
    def pending(self) -> bool:
        return self.active and not self.node


@dataclass(frozen=True)
class ObservedQueue:
    name: str
    parent: str
    quota: int
    limit: int

    @classmethod
    def of(cls, queue: Json) -> ObservedQueue:
        gpu = queue["spec"].get("resources", {}).get("gpu", {})
        return cls(
            name=queue["metadata"]["name"],
            parent=queue["spec"].get("parentQueue", ""),
            quota=_milli(gpu.get("quota", 0)),
            limit=_milli(gpu.get("limit", UNLIMITED)),
        )


@dataclass
class ClusterState:
    """`free` are whole GPUs by node and units of the GPU with slices, of the nodes that can be used."""

    queues: dict[str, ObservedQueue] = field(default_factory=dict)
    pods: dict[str, ObservedPod] = field(default_factory=dict)
    minimums: dict[tuple[str, str], int] = field(default_factory=dict)
    free_gpus: dict[str, int] = field(default_factory=dict)
    free_units: dict[str, list[set[int]]] = field(default_factory=dict)

    def path(self, queue: str) -> list[str]:
        """From a queue upwards, as far as it exists."""
        found: list[str] = []
        while queue in self.queues and queue not in found:
            found.append(queue)
            queue = self.queues[queue].parent
        return found

    def used(self, pods: Iterable[ObservedPod] | None = None) -> dict[str, int]:
        """By queue; of all running pods if none are given."""
        used = dict.fromkeys(self.queues, 0)
        for pod in self.running() if pods is None else pods:
            for name in self.path(pod.queue):
                used[name] += pod.milli
        return used

    def deserved(self, name: str) -> int:
        """The quota of a queue, as far as its limit and those of the queues below it let it be used."""
        quota, most = self.queues[name].quota, self._most(name)
        return max(quota, most) if UNLIMITED in (quota, most) else min(quota, most)

    def _most(self, name: str) -> int:
        limit = self.queues[name].limit
        below = [self._most(each.name) for each in self.queues.values() if each.parent == name]
        if not below or UNLIMITED in below:
            return limit
        return sum(below) if limit == UNLIMITED else min(limit, sum(below))

    def running(self) -> list[ObservedPod]:
        return [pod for pod in self.pods.values() if pod.running]

    def partial_groups(self) -> Iterator[tuple[tuple[str, str], int, int]]:
        """Groups that run below their minimum: how many pods, of how many."""
        members: dict[tuple[str, str], int] = {}
        for pod in self.running():
            if pod.group:
                members[pod.namespace, pod.group] = members.get((pod.namespace, pod.group), 0) + 1
        for key, count in members.items():
            if count < self.minimums.get(key, 0):
                yield key, count, self.minimums[key]

    # What could be done, at rest

    def could_run(self) -> list[str]:
        """Pending pods for which there is room, and which no queue stops."""
        return [
            f"{pods[0].namespace}/{pods[0].name} of {pods[0].queue} ({len(pods)} x {pods[0].resource})"
            for pods in self._units()
            if self._admitted(pods) and self._room(pods[0].resource) >= len(pods)
        ]

    def could_reclaim(self) -> list[str]:
        """Pending pods within every quota on their way, while another root queue is above its own: each of its queues
        in use has a preemptible pod with such a device that could go."""
        return [
            f"{pods[0].namespace}/{pods[0].name} of {pods[0].queue} from {root}"
            for pods in self._units()
            if len(pods) == 1 and pods[0].resource == GPU and self._admitted(pods) and self._within_quota(pods)
            for root in self._above_quota(besides=self.path(pods[0].queue)[-1])
        ]

    def _units(self) -> Iterator[list[ObservedPod]]:
        """Pending pods that start together: what the minimum of a group lacks; otherwise each alone."""
        groups: dict[tuple[str, str], list[ObservedPod]] = {}
        for pod in sorted(self.pods.values(), key=lambda pod: pod.uid):
            if not pod.pending or not self.path(pod.queue):
                continue
            if pod.group:
                groups.setdefault((pod.namespace, pod.group), []).append(pod)
            else:
                yield [pod]
        for key, pods in groups.items():
            running = sum((pod.namespace, pod.group) == key for pod in self.running())
            lacking = self.minimums.get(key, len(pods) + 1) - running
            if lacking <= len(pods):
                yield pods[: max(lacking, 1)]

    def _admitted(self, pods: list[ObservedPod]) -> bool:
        more, used = sum(pod.milli for pod in pods), self.used()
        firm = self.used(pod for pod in self.running() if not pod.preemptible)
        for name in self.path(pods[0].queue):
            queue = self.queues[name]
            if queue.limit != UNLIMITED and used[name] + more > queue.limit:
                return False
            if not pods[0].preemptible and queue.quota != UNLIMITED and firm[name] + more > queue.quota:
                return False
        return True

    def _within_quota(self, pods: list[ObservedPod]) -> bool:
        more, used = sum(pod.milli for pod in pods), self.used()
        return all(used[name] + more <= self.queues[name].quota for name in self.path(pods[0].queue))

    def _above_quota(self, *, besides: str) -> Iterator[str]:
        used = self.used()
        for name, queue in self.queues.items():
            if queue.parent or name == besides or not 0 <= queue.quota < used[name]:
                continue
            below = {pod.queue for pod in self.running() if self.path(pod.queue)[-1:] == [name]}
            willing = {
                pod.queue for pod in self.running() if pod.preemptible and pod.resource == GPU and self._usable(pod)
            }
            if below and below <= willing:
                yield name

    def _usable(self, pod: ObservedPod) -> bool:
        return pod.node in self.free_gpus

    def _room(self, resource: str) -> int:
        if resource == GPU:
            return sum(self.free_gpus.values())
        size, starts = PLACES[resource.removeprefix(SLICE)]
        return sum(_places(units, size, starts) for gpus in self.free_units.values() for units in gpus)


def _places(free: set[int], size: int, starts: Iterable[int]) -> int:
    """How many slices fit side by side; starts are multiples of the size."""
    return sum(free.issuperset(range(start, start + size)) for start in starts)


def _milli(amount: float) -> int:
    return UNLIMITED if amount == UNLIMITED else round(amount * MILLI)
