"""An API server in this process that calls our fallback webhook over TLS, and the pods that tests send through it.

Nodes are objects only: what is decided at admission needs no kubelet.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp

from apportion import manifests
from apportion.admission.fallback.decision_rounds import Patience
from apportion.admission.main import FALLBACK, Settings, Webhook
from apportion.admission.server import Limits
from apportion.apis import kinds, names
from apportion.apis.custom_resources import crds
from apportion.apis.installation import Installation
from apportion.apis.kinds import Kind
from apportion.cluster import errors
from apportion.cluster.client import Client
from pocketkube.api.in_process_transport import LocalTransport
from pocketkube.api.request_attributes import AUTHENTICATED, User
from pocketkube.api.server import ApiServer
from tests.admission.api_server import kind_of
from tests.builders import nodes
from tests.environments.waiting import eventually

Json = dict[str, Any]
NAMESPACE = names.FALLBACK_NAMESPACE
CONFIGURATIONS = (kinds.MUTATING_WEBHOOKS, names.FALLBACK_WEBHOOK_CONFIGURATION)
SMALL = {"nvidia.com/mig-1g.10gb": 28}
MEDIUM = {"nvidia.com/mig-2g.20gb": 12, "nvidia.com/mig-1g.10gb": 4}
PATIENCE = Patience(deadline=3.0, lifetime=5.0)
SETTINGS = Settings(
    listen="127.0.0.1:0",
    probes="127.0.0.1:0",
    serve=(FALLBACK,),
    namespace=NAMESPACE,
    service=Installation.fallback_service,
    secret=Installation.fallback_secret,
    patience=PATIENCE,
    limits=Limits(drain_seconds=0),
)


class FallbackCluster:
    """A server, its administrator's client, and replicas of the webhook."""

    def __init__(self, server: ApiServer, client: Client) -> None:
        self.server = server
        self.client = client
        self._replicas: dict[str, asyncio.Task[None]] = {}

    async def start(self, name: str, settings: Settings = SETTINGS, *, client: Client | None = None) -> str:
        """One replica; its endpoint is ready when it says that it is. Gives its address."""
        webhook = Webhook(client or self.account(), settings)
        task = asyncio.create_task(webhook.run())
        self._replicas[name] = task
        address, probes = await asyncio.wait_for(asyncio.shield(webhook.bound), 10)
        await eventually(lambda: ready(probes))
        await self.client.create(kinds.ENDPOINT_SLICES, endpoint(name, address), namespace=NAMESPACE)
        return str(address)

    async def stop(self, name: str) -> None:
        task = self._replicas.pop(name)
        await self.client.delete(kinds.ENDPOINT_SLICES, name, namespace=NAMESPACE)
        task.cancel()
        await asyncio.wait([task], timeout=10)

    async def close(self) -> None:
        for name in list(self._replicas):
            await self.stop(name)

    def account(self) -> Client:
        """The server as the webhook's own service account sees it, with the roles that ship."""
        user = User(f"system:serviceaccount:{NAMESPACE}:gpu-webhook", ("system:serviceaccounts", AUTHENTICATED))
        return Client(LocalTransport(self.server, user))

    async def namespace(self, name: str, **metadata: Any) -> None:
        await self.client.create(kinds.NAMESPACES, {"metadata": {"name": name, **metadata}})
        await self.client.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace=name)

    async def node(self, name: str, devices: Mapping[str, int], labels: Mapping[str, str] | None = None) -> None:
        await self.client.create(kinds.NODES, {"metadata": {"name": name, "labels": dict(labels or {})}})
        await self.client.patch(kinds.NODES, name, {"spec": {"taints": None}})  # a new node counts as not ready
        await self.set_capacity(name, devices)

    async def set_capacity(self, name: str, devices: Mapping[str, int]) -> None:
        counts = dict.fromkeys((*SMALL, *MEDIUM), 0) | dict(devices)
        await self.client.patch(kinds.NODES, name, {"status": nodes.status(counts)}, subresource="status")

    async def slicing_kinds(self) -> None:
        """What the slicing planes bring along."""
        for definition in crds.crds():
            await self.client.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, definition)
        await self.client.create(kinds.NAMESPACES, {"metadata": {"name": names.DAS_NAMESPACE}})
        await eventually(lambda: self._listable(kinds.NODE_ACCELERATORS))
        await eventually(lambda: self._listable(kinds.ALLOCATION_CLAIMS))

    async def _listable(self, kind: Kind) -> bool:
        try:
            await self.client.list(kind, namespace=names.DAS_NAMESPACE)
        except errors.NotFound:
            return False
        return True

    async def document(self) -> None:
        """The nodes of the document."""
        await self.node("small", SMALL, {"node-pool": "small", names.GPU_PRODUCT_LABEL: "NVIDIA-H200"})
        await self.node("medium", MEDIUM, {"node-pool": "medium", names.GPU_PRODUCT_LABEL: "NVIDIA-H200"})

    async def create(self, body: Json, *, dry_run: bool = False, namespace: str = "default") -> Json:
        return await self.client.create(kinds.PODS, body, namespace=namespace, dry_run=dry_run)

    async def bind(self, pod: Json, node: str) -> None:
        meta = pod["metadata"]
        await self.client.bind(meta["namespace"], meta["name"], meta["uid"], node)

    async def remove(self, pod: Json) -> None:
        await self.client.delete(kinds.PODS, pod["metadata"]["name"], namespace=pod["metadata"]["namespace"], grace=0)

    async def stored_promises(self) -> Json:
        found = await self.client.get(kinds.CONFIG_MAPS, names.FALLBACK_PROMISES, namespace=NAMESPACE)
        stored: Json = json.loads((found.get("data") or {}).get("book") or "{}")
        return stored


@asynccontextmanager
async def fallback_cluster(
    *, replicas: int = 1, settings: Settings = SETTINGS, document: bool = True
) -> AsyncIterator[FallbackCluster]:
    async with AsyncExitStack() as stack:
        server = ApiServer()
        client = await stack.enter_async_context(Client(LocalTransport(server)))
        stack.push_async_callback(server.close)
        it = FallbackCluster(server, client)
        await it.namespace("default")
        for manifest in manifests.load("fallback"):
            if manifest["kind"] != "Deployment":
                await client.create(
                    kind_of(server, manifest), manifest, namespace=manifest["metadata"].get("namespace")
                )
        if document:
            await it.document()
        stack.push_async_callback(it.close)
        for number in range(replicas):
            await it.start(f"replica-{number}", settings)
        yield it


def asked(stored: Json) -> dict[str, int]:
    """The MIG devices of a stored pod, which limits and requests must agree on."""
    total: Counter[str] = Counter()
    for container in stored["spec"]["containers"]:
        limits, wanted = (container["resources"].get(part, {}) for part in ("limits", "requests"))
        found = {name.removeprefix("nvidia.com/mig-"): int(n) for name, n in limits.items() if "mig" in name}
        assert found == {name.removeprefix("nvidia.com/mig-"): int(n) for name, n in wanted.items() if "mig" in name}
        total.update(found)
    return dict(total)


def fallback(stored: Json) -> str | None:
    found: str | None = (stored["metadata"].get("annotations") or {}).get(names.FALLBACK_APPLIED)
    return found


def endpoint(name: str, address: str) -> Json:
    host, _, port = address.rpartition(":")
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": Installation.fallback_service}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": int(port), "protocol": "TCP"}],
    }


def with_patience(**changes: float) -> Settings:
    return replace(SETTINGS, patience=replace(PATIENCE, **changes))


async def ready(probes: str) -> bool:
    async with aiohttp.ClientSession() as session, session.get(f"http://{probes}/readyz") as response:
        return response.status == 200
