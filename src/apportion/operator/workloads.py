"""The Deployments and the DaemonSet of the planes, and their health."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from apportion.apis import kinds, names
from apportion.apis.kinds import Kind
from apportion.apis.meta import ObjectMeta, Wire


@dataclass(frozen=True)
class ManagedWorkload:
    """One required workload, and its container that the operator configures."""

    kind: Kind
    name: str
    container: str
    means: str


AGENTS = ManagedWorkload(kinds.DAEMON_SETS, names.AGENT_DAEMON_SET, "agent", "slices are neither created nor deleted")
WEBHOOK = ManagedWorkload(
    kinds.DEPLOYMENTS, names.WEBHOOK_DEPLOYMENT, "webhook", "pods that request GPUs cannot be created"
)
SCHEDULER = ManagedWorkload(kinds.DEPLOYMENTS, names.DAS_SCHEDULER, "scheduler", "pods with slices stay pending")
PLANES = (WEBHOOK, SCHEDULER, AGENTS)


class WorkloadSpec(Wire):
    replicas: int = 1
    template: dict[str, Any] = msgspec.field(default_factory=dict)


class WorkloadStatus(Wire):
    """Fields of both kinds; each kind sets its own."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_ready: int = 0
    number_available: int = 0


class Workload(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


@dataclass(frozen=True)
class Health:
    """Desired and actual pods of a plane."""

    plane: ManagedWorkload
    present: bool = False
    settled: bool = False
    desired: int = 0
    updated: int = 0
    ready: int = 0
    available: int = 0
    template: dict[str, Any] = field(default_factory=dict)

    @property
    def rolling(self) -> bool:
        return self.present and (not self.settled or self.updated < self.desired)

    @property
    def short(self) -> bool:
        return self.available < self.desired


def health(plane: ManagedWorkload, workload: Workload | None) -> Health:
    if workload is None:
        return Health(plane)
    status = workload.status
    settled = status.observed_generation >= workload.metadata.generation
    if plane.kind is kinds.DAEMON_SETS:
        counts = (status.desired_number_scheduled, status.updated_number_scheduled, status.number_ready)
        available = status.number_available
    else:
        counts = (workload.spec.replicas, status.updated_replicas, status.ready_replicas)
        available = status.available_replicas
    return Health(plane, True, settled, *counts, available, workload.spec.template)  # noqa: FBT003  present
