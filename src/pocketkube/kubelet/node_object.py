"""A node's object: registered at the start, its capacity kept true, its lease renewed."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from typing import Any

from apportion.apis import kinds
from apportion.cluster import errors
from apportion.cluster.client import Client, PatchType
from pocketkube.clock import Clock, micro_stamp, stamp
from pocketkube.kubelet.settings import KubeletSettings
from pocketkube.node_pools import NodePlan

log = logging.getLogger(__name__)

KUBELET_VERSION = "v1.34.4"
LEASE_NAMESPACE = "kube-node-lease"
_LEASE_SECONDS = 40
_RETRY_SECONDS = 0.5
_SYSTEM_ID = uuid.UUID(int=0)

_CONDITIONS = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
}


class NodeObject:
    """Keeps one Node and its Lease up to date. `extended` holds capacity and allocatable from device plugins."""

    def __init__(
        self,
        plan: NodePlan,
        address: str,
        client: Client,
        clock: Clock,
        settings: KubeletSettings,
        *,
        port: int = 10250,
    ) -> None:
        self.name = plan.name
        self.object: dict[str, Any] = {}
        self._plan = plan
        self._address = address
        self._port = port
        self._client = client
        self._clock = clock
        self._settings = settings
        self._extended: dict[str, tuple[int, int]] = {}
        self._known: set[str] = set()
        self._since: dict[str, str] = {}
        self._changed = asyncio.Event()

    async def register(self) -> None:
        """Create the node, or take over the one that is there."""
        body = self._body()
        try:
            self.object = await self._client.create(kinds.NODES, body)
        except errors.AlreadyExists:
            labels = {
                "metadata": {"labels": body["metadata"]["labels"], "annotations": body["metadata"]["annotations"]}
            }
            self.object = await self._client.patch(kinds.NODES, self.name, labels)
        await self._report()
        await self._renew_lease()

    def set_devices(self, totals: Mapping[str, tuple[int, int]]) -> None:
        """New capacity: reported at once."""
        self._extended = dict(totals)
        self._known |= set(totals)
        self._changed.set()

    def observe(self, node: dict[str, Any]) -> None:
        """The object as others see it; if it is not marked as ready, or was created anew, report at once."""
        self.object = node
        conditions = (node.get("status") or {}).get("conditions") or ()
        if not any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
            self._changed.set()

    async def run(self) -> None:
        """Report until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_lease())
            group.create_task(self._keep_status())

    async def _keep_lease(self) -> None:
        while True:
            await self._clock.sleep(self._settings.heartbeat)
            try:
                await self._renew_lease()
            except errors.ClusterError as error:
                log.warning("lease of node %s: %s", self.name, error)

    async def _keep_status(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._settings.status_report):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            try:
                await self._report()
            except errors.NotFound:  # the node was deleted; a kubelet does not make it again
                continue
            except errors.ClusterError as error:
                log.warning("status of node %s: %s", self.name, error)
                self._changed.set()
                await self._clock.sleep(_RETRY_SECONDS)

    async def _report(self) -> None:
        patch = {"status": self._status()}
        self.object = await self._client.patch(
            kinds.NODES, self.name, patch, how=PatchType.strategic, subresource="status"
        )

    async def _renew_lease(self) -> None:
        now = micro_stamp(self._clock.now())
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": _LEASE_SECONDS, "renewTime": now}
        try:
            await self._client.patch(kinds.LEASES, self.name, {"spec": spec}, namespace=LEASE_NAMESPACE)
        except errors.NotFound:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": self.object["metadata"]["uid"]}
            meta = {"name": self.name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
            await self._client.create(kinds.LEASES, {"metadata": meta, "spec": spec}, namespace=LEASE_NAMESPACE)

    def _body(self) -> dict[str, Any]:
        spec = {"taints": self._plan.taints} if self._plan.taints else {}
        meta = {"name": self.name, "labels": dict(self._plan.labels), "annotations": dict(self._plan.annotations)}
        return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec}

    def _status(self) -> dict[str, Any]:
        capacity, allocatable = dict(self._plan.capacity), dict(self._plan.capacity)
        for resource in self._known:
            total, free = self._extended.get(resource, (0, 0))
            capacity[resource], allocatable[resource] = str(total), str(free)
        system = str(uuid.uuid5(_SYSTEM_ID, self.name))
        return {
            "capacity": capacity,
            "allocatable": allocatable,
            "conditions": self._conditions(),
            "addresses": [
                {"type": "InternalIP", "address": self._address},
                {"type": "Hostname", "address": self.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "nodeInfo": {
                "machineID": system.replace("-", ""),
                "systemUUID": system,
                "bootID": system,
                "kernelVersion": "6.12.0-embedded",
                "osImage": "Apportion embedded node",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": KUBELET_VERSION,
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        }

    def _conditions(self) -> list[dict[str, Any]]:
        now = stamp(self._clock.now())
        made: list[dict[str, Any]] = []
        for kind, (value, reason, message) in _CONDITIONS.items():
            since = self._since.setdefault(kind, now)
            made.append(
                {
                    "type": kind,
                    "status": value,
                    "reason": reason,
                    "message": message,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": since,
                }
            )
        return made
