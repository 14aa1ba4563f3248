"""Tells the cluster what this node has: the NodeAccelerator object, kept as it should be.

The object is watched, so that whatever others change or delete comes back.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from apportion.apis import accelerators, kinds
from apportion.apis.accelerators import (
    Accelerator,
    AcceleratorProfile,
    AgentReference,
    FixedSlice,
    ForeignSlice,
    NodeAccelerator,
)
from apportion.apis.meta import Condition, condition, to_wire
from apportion.cluster import clock, errors
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.node.hardware.partitioner import Gpu, Slice
from apportion.node.readiness import STOPPED, Readiness
from apportion.node.settings import Settings

UNKNOWN_SLICES = "UnknownSlices"

log = logging.getLogger(__name__)


class AcceleratorReport:
    def __init__(self, client: Client, settings: Settings, kind: str) -> None:
        self._client = client
        self._settings = settings
        self._kind = kind
        self.informer = Informer(
            client,
            kinds.NODE_ACCELERATORS,
            into=NodeAccelerator,
            namespace=settings.namespace,
            fields=f"metadata.name={settings.node_name}",
        )

    async def publish(self, gpus: Sequence[Gpu], readiness: Readiness, foreign: Sequence[Slice], node_uid: str) -> None:
        """Write the object if it says anything else."""
        current = self.informer.get(self._settings.node_name, self._settings.namespace)
        old = current.status.conditions if current else []
        conditions = [_ready(readiness, old)]
        if foreign:
            conditions.append(_unknown(foreign, old))
        status: dict[str, Any] = {
            "gpus": [to_wire(_accelerator(gpu, foreign)) for gpu in gpus],
            "agent": to_wire(self._agent()),
            "conditions": [to_wire(entry) for entry in conditions],
        }
        if current is None:
            await self._create(node_uid)
        elif status == _status(current):
            return
        await self._patch(status)

    async def retire(self) -> None:
        """The last word of an agent that is stopped in order."""
        if self.informer.get(self._settings.node_name, self._settings.namespace) is not None:
            await self._patch({"conditions": [to_wire(_ready(STOPPED, []))]})

    async def _create(self, node_uid: str) -> None:
        metadata: dict[str, Any] = {"name": self._settings.node_name, "namespace": self._settings.namespace}
        if node_uid:  # goes with its Node
            owner = {"apiVersion": "v1", "kind": "Node", "name": self._settings.node_name, "uid": node_uid}
            metadata["ownerReferences"] = [owner]
        body = {"metadata": metadata, "spec": {"acceleratorType": self._kind}}
        try:
            await self._client.create(kinds.NODE_ACCELERATORS, body, namespace=self._settings.namespace)
        except errors.AlreadyExists:
            return

    async def _patch(self, status: dict[str, Any]) -> None:
        await self._client.patch(
            kinds.NODE_ACCELERATORS,
            self._settings.node_name,
            {"status": status},
            namespace=self._settings.namespace,
            subresource="status",
        )

    def _agent(self) -> AgentReference:
        settings = self._settings
        return AgentReference(namespace=settings.pod_namespace, name=settings.pod_name, uid=settings.pod_uid)


def _accelerator(gpu: Gpu, foreign: Sequence[Slice]) -> Accelerator:
    return Accelerator(
        uuid=gpu.uuid,
        model=gpu.model,
        memory_mib=gpu.memory_mib,
        mig_enabled=gpu.sliced,
        healthy=gpu.healthy,
        profiles=[
            AcceleratorProfile(name=entry.name, size=entry.size, starts=list(entry.starts), limit=entry.limit)
            for entry in gpu.profiles
        ],
        foreign=[
            ForeignSlice(start=found.place.start, size=found.place.size, profile=found.place.profile)
            for found in sorted(foreign, key=lambda found: found.place)
            if found.place.gpu == gpu.uuid
        ],
        fixed=[
            FixedSlice(profile=cut.place.profile, start=cut.place.start, size=cut.place.size, uuid=cut.uuid)
            for cut in gpu.fixed or ()
        ],
    )


def _ready(readiness: Readiness, old: list[Condition]) -> Condition:
    status = "True" if readiness.ready else "False"
    return _condition(accelerators.READY, status, readiness.reason, readiness.message, old)


def _unknown(foreign: Sequence[Slice], old: list[Condition]) -> Condition:
    text = "; ".join(sorted(f"{found.uuid or 'unfinished'}: {found.place}" for found in foreign))
    return _condition(UNKNOWN_SLICES, "True", "NotMadeHere", f"Slices that Apportion leaves alone: {text}", old)


def _condition(kind: str, status: str, reason: str, message: str, old: list[Condition]) -> Condition:
    before = condition(old, kind)
    since = before.last_transition_time if before and before.status == status else clock.timestamp()
    return Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=since)


def _status(current: NodeAccelerator) -> dict[str, Any]:
    status = current.status
    return {
        "gpus": [to_wire(gpu) for gpu in status.gpus],
        "agent": to_wire(status.agent) if status.agent else None,
        "conditions": [to_wire(entry) for entry in status.conditions],
    }
