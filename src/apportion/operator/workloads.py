"""The workloads that the operator manages (Deployments and a DaemonSet), and their health."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

import msgspec

from apportion.apis import kinds
from apportion.apis.installation import Installation
from apportion.apis.kinds import Kind
from apportion.apis.meta import ObjectMeta, Wire


class ManagedPlane(enum.Enum):
    """The planes that the operator manages."""

    webhook = "webhook"
    scheduler = "scheduler"
    agent = "agent"


@dataclass(frozen=True)
class ManagedWorkload:
    """One required workload. The operator configures its container `container`; `means` is the effect if it is down."""

    plane: ManagedPlane
    kind: Kind
    name: str
    container: str
    means: str


def managed_workloads(installation: Installation) -> tuple[ManagedWorkload, ...]:
    return (
        ManagedWorkload(
            ManagedPlane.webhook,
            kinds.DEPLOYMENTS,
            installation.webhook_deployment,
            container="webhook",
            means="pods that request GPUs cannot be created",
        ),
        ManagedWorkload(
            ManagedPlane.scheduler,
            kinds.DEPLOYMENTS,
            installation.scheduler_deployment,
            container="scheduler",
            means="pods with slices stay pending",
        ),
        ManagedWorkload(
            ManagedPlane.agent,
            kinds.DAEMON_SETS,
            installation.agent_daemon_set,
            container="agent",
            means="slices are neither created nor deleted",
        ),
    )


class WorkloadSpec(Wire):
    replicas: int = 1
    template: dict[str, Any] = msgspec.field(default_factory=dict)


class WorkloadStatus(Wire):
    """Fields of both kinds; each kind sets its own."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0  # of Deployments
    available_replicas: int = 0
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_available: int = 0


class Workload(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


@dataclass(frozen=True)
class Health:
    """Desired and actual pods of a workload."""

    managed: ManagedWorkload
    present: bool = False
    settled: bool = False
    desired: int = 0
    updated: int = 0
    available: int = 0
    template: dict[str, Any] = field(default_factory=dict)

    @property
    def rolling(self) -> bool:
        return self.present and (not self.settled or self.updated < self.desired)

    @property
    def short(self) -> bool:
        return self.available < self.desired


def health(managed: ManagedWorkload, workload: Workload | None) -> Health:
    if workload is None:
        return Health(managed)
    status = workload.status
    settled = status.observed_generation >= workload.metadata.generation
    if managed.kind is kinds.DAEMON_SETS:
        counts = (status.desired_number_scheduled, status.updated_number_scheduled)
        available = status.number_available
    else:
        counts = (workload.spec.replicas, status.updated_replicas)
        available = status.available_replicas
    return Health(managed, True, settled, *counts, available, workload.spec.template)  # noqa: FBT003  present
