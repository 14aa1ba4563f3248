"""Creates the NetworkPolicies that were shipped again if they are deleted. Existing ones are left as they are."""

from __future__ import annotations

import logging
from typing import Any

from apportion import manifests
from apportion.apis import kinds
from apportion.apis.meta import Bare
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer

log = logging.getLogger(__name__)


class NetworkPolicies:
    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._shipped = [_in_namespace(entry, namespace) for entry in manifests.load() if _is_policy(entry)]
        self.informer = Informer(client, kinds.NETWORK_POLICIES, into=Bare, namespace=namespace)

    async def restore(self) -> None:
        for body in self._shipped:
            name = body["metadata"]["name"]
            if self.informer.get(name, self._namespace) is not None:
                continue
            try:
                await self._client.create(kinds.NETWORK_POLICIES, body, namespace=self._namespace)
            except errors.AlreadyExists:  # our view is behind
                continue
            log.info("created NetworkPolicy %s again", name)


def _is_policy(entry: dict[str, Any]) -> bool:
    return (entry["apiVersion"], entry["kind"]) == (
        kinds.NETWORK_POLICIES.api_version,
        kinds.NETWORK_POLICIES.kind,
    )


def _in_namespace(entry: dict[str, Any], namespace: str) -> dict[str, Any]:
    return entry | {"metadata": entry["metadata"] | {"namespace": namespace}}
