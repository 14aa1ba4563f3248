"""How much GPU memory each pod uses, beside its share: metrics, and a report of pods above their share.

A share divides the memory of a GPU by agreement: nothing stops a process from allocating more. So what processes use is
measured, and a pod that uses more than it asked for is reported when that begins. `top` shows the same figures from the
NodeAccelerator (`cluster/accelerator_status`). What else may be done with it then
(evict it, limit its processes) belongs into `MemoryUse._exceeded`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from apportion.apis.identities import DeviceUUID, PodUID
from apportion.cluster.events import Recorder, Regarding
from apportion.node.hardware.partitioner import GpuUser, Process
from apportion.node.metrics import Metrics

log = logging.getLogger(__name__)

EXCEEDED = "GPUMemoryExceeded"


@dataclass(frozen=True)
class Use:
    """What one pod uses of one device; None if the driver does not tell. `asked_mib` is its share; None if it has the
    device alone."""

    pod: GpuUser
    device: DeviceUUID
    used_mib: int | None
    asked_mib: int | None

    @property
    def exceeds(self) -> bool:
        return self.asked_mib is not None and self.used_mib is not None and self.used_mib > self.asked_mib


def of_pods(
    users: Sequence[GpuUser], processes: Iterable[Process], pod_of: Callable[[int], PodUID | None]
) -> list[Use]:
    """A process counts for its pod: as the driver says, by its process id, or because nobody else has the device.

    Memory of an unknown amount makes the use of its pod unknown; without a pod, that of all pods on the device."""
    used: Counter[tuple[PodUID | None, DeviceUUID]] = Counter()
    unknown: set[tuple[PodUID | None, DeviceUUID]] = set()
    alone = _only_users(users)
    for process in processes:
        pod = process.pod or (pod_of(process.pid) if process.pid else None) or alone.get(process.device)
        if process.memory_mib is None:
            unknown.add((pod, process.device))
        else:
            used[pod, process.device] += process.memory_mib
    return [
        Use(user, device, None if unknown & {(user.uid, device), (None, device)} else used[user.uid, device], asked)
        for user in users
        for device, asked in user.devices.items()
    ]


def _only_users(users: Sequence[GpuUser]) -> dict[DeviceUUID, PodUID]:
    pods: dict[DeviceUUID, list[PodUID]] = {}
    for user in users:
        for device in user.devices:
            pods.setdefault(device, []).append(user.uid)
    return {device: found[0] for device, found in pods.items() if len(found) == 1}


class MemoryUse:
    """Reports every pod once when it begins to use more than its share."""

    def __init__(self, metrics: Metrics, recorder: Recorder) -> None:
        self._metrics = metrics
        self._recorder = recorder
        self._above: set[tuple[PodUID, DeviceUUID]] = set()

    def report(self, uses: Sequence[Use]) -> None:
        self._metrics.show_pods(
            (use.pod.namespace, use.pod.name, use.device, use.used_mib, use.asked_mib, use.exceeds) for use in uses
        )
        for use in uses:
            if use.exceeds and (use.pod.uid, use.device) not in self._above:
                self._exceeded(use)
        self._above = {(use.pod.uid, use.device) for use in uses if use.exceeds}

    def _exceeded(self, use: Use) -> None:
        """A pod began to use more than its share. The place for enforcement."""
        self._metrics.exceeded.inc()
        text = (
            f"uses {use.used_mib} MiB of GPU {use.device}, and its share is {use.asked_mib} MiB: other pods that share "
            "the GPU can run out of memory. Limit the memory of its processes, or request a larger share"
        )
        log.warning("pod %s/%s %s", use.pod.namespace, use.pod.name, text)
        self._recorder.warn(Regarding.pod(use.pod.namespace, use.pod.name, use.pod.uid), EXCEEDED, f"The pod {text}.")
