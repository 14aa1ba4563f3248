"""What a pod does next: pure, from the records of its containers.

The order is a kubelet's. Init containers run one after the other; a sidecar counts as done once it has started.
Then all other containers run side by side. What ended is started again as the restart policy says, not before
its back-off is over. When the last ordinary container has ended for good, the sidecars are stopped, last one first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pocketkube.kubelet.pods.container_records import ContainerRecord, PodRecord, Role

RestartPolicy = Literal["Always", "OnFailure", "Never"]


@dataclass(frozen=True)
class Step:
    """What to do now. `wake_at` is when to look again if nothing happens before."""

    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    backing_off: tuple[str, ...] = ()
    wake_at: float | None = None
    finished: bool = False


def next_step(record: PodRecord, policy: RestartPolicy, now: float) -> Step:
    if _failed_for_good(record, policy):
        return _wind_down(record)
    apps = record.of(Role.APP)
    if all(_done(container, policy) for container in apps):
        return _wind_down(record)
    candidates, initialised = _init_candidates(record, policy)
    if initialised:
        candidates += [container for container in apps if not container.running and not _done(container, policy)]
    return _starts(candidates, now)


def initialised(record: PodRecord) -> bool:
    """Whether the init containers are through."""
    return all(init_done(container) for container in record.of(Role.INIT, Role.SIDECAR))


def init_done(container: ContainerRecord) -> bool:
    """Whether this init container no longer holds up the next one."""
    if container.role is Role.SIDECAR:
        return container.ever_started
    return container.ended is not None and container.ended.exit_code == 0


def will_restart(container: ContainerRecord, policy: RestartPolicy) -> bool:
    ended = container.ended
    if ended is None:
        return True
    if container.role is Role.SIDECAR or (policy == "Always" and container.role is Role.APP):
        return True
    return policy != "Never" and ended.exit_code != 0


def _failed_for_good(record: PodRecord, policy: RestartPolicy) -> bool:
    """An init container failed and the policy forbids another try."""
    return policy == "Never" and any(
        container.ended is not None and container.ended.exit_code != 0 for container in record.of(Role.INIT)
    )


def _done(container: ContainerRecord, policy: RestartPolicy) -> bool:
    return container.ended is not None and not container.running and not will_restart(container, policy)


def _init_candidates(record: PodRecord, policy: RestartPolicy) -> tuple[list[ContainerRecord], bool]:
    """Init containers that must start now, and whether all of them are through."""
    wanted: list[ContainerRecord] = []
    for container in record.of(Role.INIT, Role.SIDECAR):
        if container.role is Role.SIDECAR:
            if not container.running:
                wanted.append(container)
            if not init_done(container):
                return wanted, False
        elif not init_done(container):
            if not container.running and will_restart(container, policy):
                wanted.append(container)
            return wanted, False
    return wanted, True


def _wind_down(record: PodRecord) -> Step:
    running = [container.name for container in record.containers.values() if container.running]
    return Step(stop=tuple(reversed(running)), finished=not running)


def _starts(candidates: Iterable[ContainerRecord], now: float) -> Step:
    ready: list[str] = []
    held: list[ContainerRecord] = []
    for container in candidates:
        if container.not_before > now:
            held.append(container)
        else:
            ready.append(container.name)
    return Step(
        start=tuple(ready),
        backing_off=tuple(container.name for container in held),
        wake_at=min((container.not_before for container in held), default=None),
    )
