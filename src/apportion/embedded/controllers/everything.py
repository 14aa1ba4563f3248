"""All controllers of an embedded cluster."""

from __future__ import annotations

from typing import Protocol

from apportion.embedded.api.server import ApiServer
from apportion.embedded.controllers.control import Control
from apportion.embedded.controllers.cronjobs import CronJobs
from apportion.embedded.controllers.daemonsets import DaemonSets
from apportion.embedded.controllers.deployments import Deployments
from apportion.embedded.controllers.disruption import DisruptionBudgets
from apportion.embedded.controllers.endpoints import EndpointsOfServices
from apportion.embedded.controllers.garbage import GarbageCollector
from apportion.embedded.controllers.jobs import Jobs
from apportion.embedded.controllers.namespaces import Namespaces
from apportion.embedded.controllers.nodelife import NodeLife
from apportion.embedded.controllers.podgc import PodGarbage
from apportion.embedded.controllers.quotas import QuotaStatus
from apportion.embedded.controllers.replicasets import ReplicaSets
from apportion.embedded.controllers.scheduler import DefaultScheduler
from apportion.embedded.controllers.serviceaccounts import ServiceAccounts
from apportion.embedded.controllers.statefulsets import StatefulSets
from apportion.embedded.controllers.volume_protection import VolumeProtection
from apportion.embedded.controllers.volumes import VolumeClaims


class Part(Protocol):
    """Something that follows the cluster: `subscribe` before informers start, then `run` until cancelled."""

    name: str

    def subscribe(self) -> None: ...

    async def run(self) -> None: ...


def controllers(control: Control, server: ApiServer, ca: str) -> list[Part]:
    return [
        Deployments(control),
        ReplicaSets(control),
        StatefulSets(control),
        DaemonSets(control),
        Jobs(control),
        CronJobs(control),
        EndpointsOfServices(control),
        Namespaces(control, server.registry, server.store),
        GarbageCollector(control.client, server.registry, server.store),
        NodeLife(control),
        PodGarbage(control),
        ServiceAccounts(control, ca),
        DisruptionBudgets(control),
        VolumeClaims(control),
        VolumeProtection(control),
        QuotaStatus(control, server.admission.quotas),
        DefaultScheduler(control),
    ]
