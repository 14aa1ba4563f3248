"""What a kubelet knows about one container of a pod: the facts that stages and status are computed from."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


class Role(enum.Enum):
    """The role of a container in its pod. A sidecar is an init container that restarts always."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True)
class Waiting:
    """Not started yet, or between two starts."""

    reason: str
    message: str = ""


@dataclass(frozen=True)
class Running:
    started_at: float


@dataclass(frozen=True)
class Terminated:
    """One run of a container that ended. `exit_code` 128 + n means killed by signal n."""

    exit_code: int
    reason: str
    started_at: float
    finished_at: float
    container_id: str
    message: str = ""


@dataclass
class ContainerRecord:
    """One container with its present run and the one before."""

    name: str
    role: Role
    spec: Json
    state: Waiting | Running | Terminated
    last: Terminated | None = None
    restarts: int = 0
    container_id: str = ""
    ready: bool = False
    started: bool = False
    ever_started: bool = False
    not_before: float = 0.0  # a failed start or a crash is not tried again before this moment

    @property
    def fresh(self) -> bool:
        """Whether it has never run."""
        return isinstance(self.state, Waiting) and self.last is None

    @property
    def ended(self) -> Terminated | None:
        """The run to judge by when it decides whether to start again: only if none is under way."""
        if isinstance(self.state, Terminated):
            return self.state
        return self.last if isinstance(self.state, Waiting) else None

    @property
    def running(self) -> bool:
        return isinstance(self.state, Running)


@dataclass
class PodRecord:
    """All containers of a pod, in the order of their start, and what the kubelet gave the pod."""

    containers: dict[str, ContainerRecord]
    started_at: float
    ip: str = ""
    host_ip: str = ""
    sandbox_ready: bool = False
    conditions: dict[str, Json] = field(default_factory=dict)
    failure: tuple[str, str] = ("", "")  # reason and message if the pod as a whole was failed

    def of(self, *roles: Role) -> list[ContainerRecord]:
        return [record for record in self.containers.values() if record.role in roles]

    def resize(self, spec: Json) -> None:
        """Take over new amounts: a simulated container needs no more than to say that it has them."""
        for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
            record = self.containers[container["name"]]
            if record.spec.get("resources") != container.get("resources"):
                record.spec = {**record.spec, "resources": container.get("resources") or {}}


def records_of(pod: Mapping[str, Any], now: float) -> PodRecord:
    """A pod that was just admitted: every container waits."""
    spec = pod["spec"]
    records: dict[str, ContainerRecord] = {}
    has_init = bool(spec.get("initContainers"))
    for container in spec.get("initContainers") or []:
        role = Role.SIDECAR if container.get("restartPolicy") == "Always" else Role.INIT
        records[container["name"]] = ContainerRecord(container["name"], role, container, Waiting("PodInitializing"))
    for container in spec["containers"]:
        waiting = Waiting("PodInitializing" if has_init else "ContainerCreating")
        records[container["name"]] = ContainerRecord(container["name"], Role.APP, container, waiting)
    return PodRecord(records, started_at=now)
