"""managementState Removed: the planes are taken away in an order that hurts nobody, and can come back.

First the webhook configurations, so that no pod waits for a webhook that goes; then webhook and scheduler;
the agents last, once every claim is gone, because nobody else frees a slice. Each object is kept in a
ConfigMap before it is deleted, so that Managed brings back exactly what was there.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import msgspec

from apportion.apis import kinds, names
from apportion.apis.kinds import Kind
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.operator.workloads import AGENTS, SCHEDULER, WEBHOOK

KEPT = "das-operator-removed"
_FIRST: tuple[tuple[Kind, str], ...] = (
    (kinds.MUTATING_WEBHOOKS, names.SLICE_WEBHOOK_CONFIGURATION),
    (kinds.VALIDATING_WEBHOOKS, names.GUARD_WEBHOOK_CONFIGURATION),
    (WEBHOOK.kind, WEBHOOK.name),
    (SCHEDULER.kind, SCHEDULER.name),
)
_LAST = (AGENTS.kind, AGENTS.name)
# Written by controllers and true of the old object only
_OF_CONTROLLERS = ("deployment.kubernetes.io/", "deprecated.daemonset.")

log = logging.getLogger(__name__)


class Removal:
    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._nothing_kept = False

    async def take_away(self) -> str:
        """Do the next steps. Returns what is waited for, or an empty text once all is gone."""
        self._nothing_kept = False
        for kind, name in _FIRST:
            await self._take(kind, name)
        if not await self._exists(*_LAST):
            return ""
        claims = await self._client.list(kinds.ALLOCATION_CLAIMS, namespace=self._namespace)
        if claims.items:
            return f"the agents stay until {len(claims.items)} slices are given back: end the pods that use them"
        await self._take(*_LAST)
        return ""

    async def bring_back(self) -> None:
        """Make again what was taken away; nothing to do if nothing was."""
        if self._nothing_kept:
            return
        try:
            kept = await self._client.get(kinds.CONFIG_MAPS, KEPT, namespace=self._namespace)
        except errors.NotFound:
            self._nothing_kept = True
            return
        for (kind, name), text in ((_target(key), text) for key, text in kept.get("data", {}).items()):
            try:
                await self._client.create(kind, msgspec.json.decode(text), namespace=self._place(kind))
                log.info("%s %s is back", kind.kind, name)
            except errors.AlreadyExists:
                continue
        with suppress(errors.NotFound):  # another replica was faster
            await self._client.delete(kinds.CONFIG_MAPS, KEPT, namespace=self._namespace)

    async def _take(self, kind: Kind, name: str) -> None:
        try:
            found = await self._client.get(kind, name, namespace=self._place(kind))
        except errors.NotFound:
            return
        if found["metadata"].get("deletionTimestamp"):
            return
        await self._keep(f"{kind.plural}.{name}", msgspec.json.encode(_essence(kind, found)).decode())
        try:
            uid = found["metadata"]["uid"]
            await self._client.delete(kind, name, namespace=self._place(kind), uid=uid, propagation="Background")
        except errors.NotFound:
            return
        log.info("%s %s is removed", kind.kind, name)

    async def _keep(self, key: str, text: str) -> None:
        body: dict[str, Any] = {"metadata": {"name": KEPT}, "data": {key: text}}
        try:
            await self._client.create(kinds.CONFIG_MAPS, body, namespace=self._namespace)
        except errors.AlreadyExists:
            await self._client.patch(kinds.CONFIG_MAPS, KEPT, {"data": {key: text}}, namespace=self._namespace)

    async def _exists(self, kind: Kind, name: str) -> bool:
        try:
            await self._client.get(kind, name, namespace=self._place(kind))
        except errors.NotFound:
            return False
        return True

    def _place(self, kind: Kind) -> str | None:
        return self._namespace if kind.namespaced else None


def _target(key: str) -> tuple[Kind, str]:
    return next((kind, name) for kind, name in (*_FIRST, _LAST) if f"{kind.plural}.{name}" == key)


def _essence(kind: Kind, found: dict[str, Any]) -> dict[str, Any]:
    """What somebody wrote, without what the API server and controllers added."""
    meta = found["metadata"]
    annotations = {
        key: value for key, value in meta.get("annotations", {}).items() if not key.startswith(_OF_CONTROLLERS)
    }
    kept = {"name": meta["name"], "labels": meta.get("labels", {}), "annotations": annotations}
    content: dict[str, Any] = {key: found[key] for key in ("spec", "webhooks") if key in found}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": kept, **content}
