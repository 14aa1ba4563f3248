"""The writes of the binder: none without the lease, each of them counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from apportion.apis.kinds import Kind
from apportion.apis.pods import Pod
from apportion.binder import metrics
from apportion.cluster import errors
from apportion.cluster.client import Client

JSON = dict[str, Any]


class LeaseLost(errors.ClusterError):
    """Nothing may be written: the lease has expired. Whoever tries again later may have it back."""


class LeasedWrites:
    """`holds` is asked right before every write."""

    def __init__(self, client: Client, holds: Callable[[], bool]) -> None:
        self._client = client
        self._holds = holds

    async def create(self, kind: Kind, body: JSON, namespace: str) -> JSON:
        self._check()
        made = await self._client.create(kind, body, namespace=namespace)
        metrics.WRITES.labels("create", kind.plural).inc()
        return made

    async def patch(self, kind: Kind, name: str, patch: JSON, namespace: str, *, subresource: str = "") -> JSON:
        """A merge patch; a `resourceVersion` or `uid` in it that no longer matches raises Conflict."""
        self._check()
        changed = await self._client.patch(kind, name, patch, namespace=namespace, subresource=subresource or None)
        metrics.WRITES.labels("patch", f"{kind.plural}/{subresource}".rstrip("/")).inc()
        return changed

    async def delete(self, kind: Kind, name: str, namespace: str, **preconditions: Any) -> None:
        self._check()
        await self._client.delete(kind, name, namespace=namespace, **preconditions)
        metrics.WRITES.labels("delete", kind.plural).inc()

    async def bind(self, pod: Pod, node: str, version: str, annotations: Mapping[str, str]) -> None:
        self._check()
        meta = pod.metadata
        await self._client.bind(
            meta.namespace, meta.name, meta.uid, node, annotations=annotations, resource_version=version
        )
        metrics.WRITES.labels("create", "pods/binding").inc()

    def _check(self) -> None:
        if not self._holds():
            raise LeaseLost("the lease of the binder has expired")


def as_pod(body: JSON) -> Pod:
    """An answer of the server, as our code reads it."""
    return msgspec.convert(body, Pod)
