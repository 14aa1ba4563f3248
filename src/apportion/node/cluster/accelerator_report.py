"""Publishes the GPUs of this node in its NodeAccelerator, and keeps the object up to date.

The object is watched, so that changes and deletions by others are reverted. Used memory changes all the time, and
nothing depends on it: a change of it alone is written some seconds after the last one at the earliest.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from apportion.apis import kinds
from apportion.apis.custom_resources.accelerators import AgentReference, NodeAccelerator, NodeAcceleratorStatus
from apportion.apis.meta import to_wire
from apportion.cluster import clock, errors
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.cluster.pending_writes import PendingWrites, version_of
from apportion.node.cluster.accelerator_status import NodeReport, ready_condition, status_of
from apportion.node.readiness import STOPPED
from apportion.node.settings import Settings

_USE = "memoryUse"
_EMPTY: dict[str, Any] = {"gpus": [], "unclaimed": None, _USE: None}  # what is empty is left out of the wire form


class AcceleratorReport:
    def __init__(self, client: Client, settings: Settings, kind: str, *, now: clock.Clock = clock.elapsed) -> None:
        self._client = client
        self._settings = settings
        self._kind = kind
        self.informer = Informer(
            client,
            kinds.NODE_ACCELERATORS,
            into=NodeAccelerator,
            namespace=settings.installation.namespace,
            fields=f"metadata.name={settings.node_name}",
        )
        self._now = now
        self._use_written = -math.inf
        self._pending: PendingWrites[NodeAccelerator] = PendingWrites()
        self.informer.on_change(lambda _old, new: self._shown(new))

    async def publish(self, state: NodeReport, node_uid: str) -> None:
        """Write the object if it differs; used memory alone not too often."""
        current = self._current()
        before = current.status if current else NodeAcceleratorStatus()
        old = to_wire(before)
        status = to_wire(status_of(state, self._agent(), before.conditions, clock.timestamp()))
        if current is None:
            await self._create(node_uid)
        elif not self._is_due(status, old):
            return
        await self._patch(_change({**_EMPTY, **status}, old))
        if status.get(_USE) != old.get(_USE):
            self._use_written = self._now()

    async def retire(self) -> None:
        """The last report of an agent that shuts down."""
        if self._current() is not None:
            await self._patch({"conditions": [to_wire(ready_condition(STOPPED, clock.timestamp()))]})

    def _is_due(self, new: dict[str, Any], old: dict[str, Any]) -> bool:
        different = {field for field in {*new, *old} if new.get(field) != old.get(field)}
        if different == {_USE}:
            return self._now() >= self._use_written + self._settings.memory_report_seconds
        return bool(different)

    async def _create(self, node_uid: str) -> None:
        metadata: dict[str, Any] = {
            "name": self._settings.node_name,
            "namespace": self._settings.installation.namespace,
        }
        if node_uid:  # goes with its Node
            owner = {"apiVersion": "v1", "kind": "Node", "name": self._settings.node_name, "uid": node_uid}
            metadata["ownerReferences"] = [owner]
        body = {"metadata": metadata, "spec": {"acceleratorType": self._kind}}
        try:
            await self._client.create(kinds.NODE_ACCELERATORS, body, namespace=self._settings.installation.namespace)
        except errors.AlreadyExists:
            return

    async def _patch(self, status: dict[str, Any]) -> None:
        name = self._settings.node_name
        answer = await self._client.patch(
            kinds.NODE_ACCELERATORS,
            name,
            {"status": status},
            namespace=self._settings.installation.namespace,
            subresource="status",
        )
        written, seen = msgspec.convert(answer, NodeAccelerator), self._seen()
        if seen is not None and version_of(written) > version_of(seen):
            self._pending.written(name, written)

    def _current(self) -> NodeAccelerator | None:
        """The object as shown, or as we wrote it since."""
        seen = self._seen()
        return self._pending.latest(seen.metadata.name, seen) if seen else None

    def _seen(self) -> NodeAccelerator | None:
        return self.informer.get(self._settings.node_name, self._settings.installation.namespace)

    def _shown(self, new: NodeAccelerator | None) -> None:
        self._pending.shown(self._settings.node_name, new)

    def _agent(self) -> AgentReference:
        settings = self._settings
        return AgentReference(namespace=settings.pod_namespace, name=settings.pod_name, uid=settings.pod_uid)


def _change(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """The merge patch: such a patch keeps entries of a map that it does not name, so those that are gone are nulled."""
    change = dict(new)
    for field, value in new.items():
        before = old.get(field)
        if isinstance(value, dict):
            gone = dict.fromkeys(before.keys() - value.keys()) if isinstance(before, dict) else {}
            change[field] = {**gone, **_change(value, before if isinstance(before, dict) else {})}
    return change
