"""An API server with our manifests in it, for one test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from apportion import manifests
from apportion.admission.main import Settings, Webhook
from apportion.admission.server import Limits
from apportion.apis import kinds, names
from apportion.apis.kinds import Kind
from apportion.cluster.client import Client
from pocketkube.api.in_process_transport import LocalTransport
from pocketkube.api.request_attributes import AUTHENTICATED, User
from pocketkube.api.server import ApiServer

SETTINGS = Settings(listen="127.0.0.1:0", probes="127.0.0.1:0", limits=Limits(drain_seconds=0))
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "PodTemplate")
ACCESS = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", *POLICIES)
NEEDED = (*ACCESS, "CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


@asynccontextmanager
async def api(installed: Collection[str] = NEEDED) -> AsyncIterator[Client]:
    """A client of a fresh server that holds our manifests of these kinds."""
    server = ApiServer()
    async with Client(LocalTransport(server)) as client:
        await client.create(kinds.NAMESPACES, {"metadata": {"name": "default"}})
        for manifest in manifests.load():
            if manifest["kind"] in installed:
                kind = kind_of(server, manifest)
                await client.create(kind, manifest, namespace=manifest["metadata"].get("namespace"))
        try:
            yield client
        finally:
            await server.close()


def account(client: Client, name: str) -> Client:
    """The same server as one of our service accounts sees it, with the roles that ship."""
    transport = client._transport
    assert isinstance(transport, LocalTransport)
    user = User(f"system:serviceaccount:{names.DAS_NAMESPACE}:{name}", ("system:serviceaccounts", AUTHENTICATED))
    return Client(LocalTransport(transport._server, user))


@asynccontextmanager
async def replica(client: Client, settings: Settings = SETTINGS) -> AsyncIterator[tuple[str, str]]:
    """A running webhook: where it serves, and where its probes are."""
    webhook = Webhook(account(client, "das-operator-webhook"), settings)
    task = asyncio.create_task(webhook.run())
    try:
        yield await asyncio.wait_for(asyncio.shield(webhook.bound), 10)
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=10)


def kind_of(server: ApiServer, manifest: dict[str, Any]) -> Kind:
    """The kind of a manifest as a client names it."""
    found = server.registry.by_api_version(manifest["apiVersion"], manifest["kind"])
    assert found is not None
    return Kind(found.group, found.version, found.plural, found.kind, found.namespaced)
