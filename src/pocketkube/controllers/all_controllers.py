"""All controllers of an embedded cluster."""

from __future__ import annotations

from typing import Protocol

from pocketkube.api.server import ApiServer
from pocketkube.controllers.admission_policies import AdmissionPolicyStatus
from pocketkube.controllers.controller import Control
from pocketkube.controllers.disruption_budgets import DisruptionBudgets
from pocketkube.controllers.endpoints import EndpointsOfServices
from pocketkube.controllers.garbage_collector import GarbageCollector
from pocketkube.controllers.namespaces import Namespaces
from pocketkube.controllers.node_lifecycle import NodeLifecycle
from pocketkube.controllers.pod_garbage_collector import PodGarbageCollector
from pocketkube.controllers.resource_quotas import QuotaStatus
from pocketkube.controllers.scheduling.scheduler import DefaultScheduler
from pocketkube.controllers.service_accounts import ServiceAccounts
from pocketkube.controllers.volumes.claims import VolumeClaims
from pocketkube.controllers.volumes.protection import VolumeProtection
from pocketkube.controllers.workloads.cron_jobs import CronJobs
from pocketkube.controllers.workloads.daemon_sets import DaemonSets
from pocketkube.controllers.workloads.deployments import Deployments
from pocketkube.controllers.workloads.jobs import Jobs
from pocketkube.controllers.workloads.replica_sets import ReplicaSets
from pocketkube.controllers.workloads.stateful_sets import StatefulSets


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
        NodeLifecycle(control),
        PodGarbageCollector(control),
        ServiceAccounts(control, ca),
        DisruptionBudgets(control),
        VolumeClaims(control),
        VolumeProtection(control),
        QuotaStatus(control, server.admission.quotas),
        AdmissionPolicyStatus(control),
        DefaultScheduler(control),
    ]
