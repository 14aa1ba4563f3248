"""The operator process: reads the DASOperator, configures the planes, and reports conditions.

Every reconciliation reads the current state, decides, and writes only differences. All writes are idempotent:
settings by server-side apply, the status with the resourceVersion that it was computed from. One replica leads; the
others follow the cluster with their informers, and take over within seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from apportion import __version__
from apportion.apis import kinds, meta, names
from apportion.apis.custom_resources.accelerators import NodeAccelerator
from apportion.apis.custom_resources.das_operator import DASOperator, DASOperatorStatus
from apportion.apis.installation import Installation
from apportion.apis.meta import Condition
from apportion.cluster import errors, lease, log_levels, probes
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.cluster.lease import Election
from apportion.cluster.workqueue import WorkQueue
from apportion.operator import conditions, plane_settings
from apportion.operator.default_queues import DefaultQueues
from apportion.operator.network_policies import NetworkPolicies
from apportion.operator.removal import Removal
from apportion.operator.unusable_nodes import NodeProblem, node_problems
from apportion.operator.workloads import Health, ManagedWorkload, Workload, health, managed_workloads

log = logging.getLogger(__name__)

MANAGED = ("Managed", "Force")
RETRY_SECONDS = 0.1
REMOVING_SECONDS = 2.0
REFUSED_SECONDS = 10.0


@dataclass(frozen=True)
class Settings:
    """How the operator runs."""

    probes: str
    installation: Installation = field(default_factory=Installation)
    identity: str = ""
    """Name of this replica in the lease; empty: the name of its pod."""
    emulated_mode: Literal["enabled", "disabled"] = "disabled"
    """emulatedMode of the DASOperator that the operator creates if there is none."""


async def run(settings: Settings) -> None:
    """Reconcile until cancelled."""
    async with Client.connect() as client:
        await Operator(client, settings).run()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Operator:
    """One replica."""

    def __init__(self, client: Client, settings: Settings, *, clock: Callable[[], str] = _now) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._object = settings.installation.operator_object
        self._namespace = namespace = settings.installation.namespace
        self._objects = Informer(
            client,
            kinds.DAS_OPERATORS,
            into=DASOperator,
            namespace=namespace,
            fields=f"metadata.name={self._object}",
        )
        self._managed = managed_workloads(settings.installation)
        self._workloads = {
            kind: Informer(client, kind, into=Workload, namespace=namespace)
            for kind in {managed.kind for managed in self._managed}
        }
        self._nodes = Informer(client, kinds.NODE_ACCELERATORS, into=NodeAccelerator, namespace=namespace)
        self._network = NetworkPolicies(client, namespace)
        self._queues = DefaultQueues(client)
        self._removal = Removal(client, settings.installation)
        self._election = Election(
            client,
            name=settings.installation.operator_lease,
            namespace=namespace,
            identity=settings.identity or lease.identity(),
        )
        self._applied: dict[ManagedWorkload, dict[str, Any]] = {}
        self._work: WorkQueue[str] = WorkQueue("dasoperator")

    async def run(self) -> None:
        followed: list[Informer[Any]] = [
            self._objects,
            self._nodes,
            self._network.informer,
            *self._workloads.values(),
        ]
        for informer in followed:
            informer.on_change(lambda _old, _new: self._work.add(self._object))
        ready = {"informers": lambda: all(informer.has_synced for informer in followed)}
        async with probes.serve(self._settings.probes, ready=ready), asyncio.TaskGroup() as tasks:
            for informer in followed:
                tasks.create_task(informer.run())
            for informer in followed:
                await informer.synced()
            await self._election.run(self._lead)

    async def _lead(self) -> None:
        self._work = WorkQueue("dasoperator")
        self._removal.forget()
        self._queues.forget()
        self._applied.clear()
        self._work.add(self._object)
        await self._work.run(self._reconcile)

    async def _reconcile(self, name: str) -> float | None:
        if not self._election.holds():
            return RETRY_SECONDS
        current = self._objects.get(name, self._namespace)
        if current is None:
            await self._create(name)
            return None
        log_levels.apply(log_levels.parse(current.spec.operator_log_level) or logging.INFO)
        if current.spec.management_state == "Removed":
            return await self._remove(current)
        found = [self._health(managed) for managed in self._managed]
        refusal = await self._manage(current, found) if current.spec.management_state in MANAGED else ""
        again = await self._report(current, conditions.assess(found, self._problems(), refusal))
        return REFUSED_SECONDS if refusal else again

    async def _manage(self, current: DASOperator, found: list[Health]) -> str:
        """Returns what an admission policy refused us, for example a workload with an image that was not shipped."""
        try:
            await self._network.restore()
            await self._queues.create_missing()
            await self._removal.restore()
            await self._apply(current, found)
        except errors.Forbidden as error:
            log.error("the API server refused a change of the operator: %s", error)  # noqa: TRY400
            return str(error)
        return ""

    async def _remove(self, current: DASOperator) -> float | None:
        self._applied.clear()
        waits = await self._removal.remove()
        again = await self._report(current, conditions.removed(waits))
        return REMOVING_SECONDS if waits else again

    def _problems(self) -> list[NodeProblem]:
        return node_problems(self._nodes.items())

    def _own_replicas(self) -> int:
        own = self._workloads[kinds.DEPLOYMENTS].get(self._settings.installation.operator_deployment, self._namespace)
        return own.status.ready_replicas if own is not None else 0

    def _health(self, managed: ManagedWorkload) -> Health:
        return health(managed, self._workloads[managed.kind].get(managed.name, self._namespace))

    async def _create(self, name: str) -> None:
        body = {"metadata": {"name": name}, "spec": {"emulatedMode": self._settings.emulated_mode}}
        try:
            await self._client.create(kinds.DAS_OPERATORS, body, namespace=self._namespace)
        except errors.AlreadyExists:
            return
        log.info("created DASOperator %s with emulatedMode %s", name, self._settings.emulated_mode)

    async def _apply(self, current: DASOperator, found: list[Health]) -> None:
        for entry in found:
            managed = entry.managed
            wanted = plane_settings.body(managed, current.spec, self._namespace)
            # Also applied once after a start, to release fields that the DASOperator no longer sets.
            settled = self._applied.get(managed) == wanted and plane_settings.holds(
                managed, current.spec, entry.template
            )
            if entry.present and not settled:
                await self._client.apply(managed.kind, wanted, field_manager=names.OPERATOR_FIELD_MANAGER)
                self._applied[managed] = wanted
                log.info("configured %s %s from DASOperator %s", managed.kind.kind, managed.name, current.metadata.name)

    async def _report(self, current: DASOperator, found: list[Condition]) -> float | None:
        try:
            await self._write(current, found)
        except errors.Conflict:  # the cache is behind, for example our own last write
            return RETRY_SECONDS
        return None

    async def _write(self, current: DASOperator, found: list[Condition]) -> None:
        generation = current.metadata.generation
        status = DASOperatorStatus(
            conditions=conditions.merge(current.status.conditions, found, now=self._clock(), generation=generation),
            observed_generation=generation,
            ready_replicas=self._own_replicas(),
            version=__version__,
        )
        if status == current.status:
            return
        version = {"resourceVersion": current.metadata.resource_version}
        await self._client.patch(
            kinds.DAS_OPERATORS,
            current.metadata.name,
            {"metadata": version, "status": meta.to_wire(status)},
            namespace=self._namespace,
            subresource="status",
        )
