"""managementState Removed: deletes the planes in a safe order, so that they can be restored.

First the webhooks are turned off, so that no pod waits for a webhook that is being deleted; then webhook and
scheduler are deleted; the agents last, when no claim is left, because only agents destroy slices. Each object is
stored in a ConfigMap before it is deleted, so that Managed restores what was deleted. The API server compares what
is restored with the shipped pods (the admission policy das-operator-workloads), so the ConfigMap need not be trusted.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import msgspec

from apportion.apis import kinds
from apportion.apis.installation import Installation
from apportion.apis.kinds import Kind
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.operator.admission_switch import AdmissionSwitch
from apportion.operator.workloads import ManagedPlane, managed_workloads

Target = tuple[Kind, str]
# Written by controllers, and valid for the old object only
_OF_CONTROLLERS = ("deployment.kubernetes.io/", "deprecated.daemonset.")
_RESTARTED = "kubectl.kubernetes.io/restartedAt"  # of pods that are gone

log = logging.getLogger(__name__)


class Removal:
    def __init__(self, client: Client, installation: Installation) -> None:
        self._client = client
        self._namespace = installation.namespace
        self._stored_in = installation.removed_objects
        self._admission = AdmissionSwitch(client, installation)
        workloads = {each.plane: (each.kind, each.name) for each in managed_workloads(installation)}
        self._first: tuple[Target, ...] = (workloads[ManagedPlane.webhook], workloads[ManagedPlane.scheduler])
        self._last: Target = workloads[ManagedPlane.agent]
        self._restored = False

    def forget(self) -> None:
        """Another replica may have acted since."""
        self._restored = False

    async def remove(self) -> str:
        """Perform the next steps. Returns what the removal waits for, or an empty text when it is complete."""
        self._restored = False
        await self._admission.turn(on=False)
        for kind, name in self._first:
            await self._delete(kind, name)
        if not await self._exists(*self._last):
            return ""
        claims = await self._client.list(kinds.ALLOCATION_CLAIMS, namespace=self._namespace)
        if claims.items:
            return f"waiting for {len(claims.items)} slices in use before the agents are removed: delete their pods"
        await self._delete(*self._last)
        return ""

    async def restore(self) -> None:
        """Create the stored objects again and turn the webhooks on; done once after each start and removal."""
        if self._restored:
            return
        await self._admission.turn(on=True)
        try:
            kept = await self._client.get(kinds.CONFIG_MAPS, self._stored_in, namespace=self._namespace)
        except errors.NotFound:
            self._restored = True
            return
        for kind, name in (*self._first, self._last):
            text = kept.get("data", {}).get(_key(kind, name))
            if text is None:
                continue
            try:
                await self._client.create(kind, msgspec.json.decode(text), namespace=self._namespace)
                log.info("restored %s %s", kind.kind, name)
            except errors.AlreadyExists:
                continue
        with suppress(errors.NotFound):  # another replica was faster
            await self._client.delete(kinds.CONFIG_MAPS, self._stored_in, namespace=self._namespace)

    async def _delete(self, kind: Kind, name: str) -> None:
        try:
            found = await self._client.get(kind, name, namespace=self._namespace)
        except errors.NotFound:
            return
        if found["metadata"].get("deletionTimestamp"):
            return
        await self._store(_key(kind, name), msgspec.json.encode(_essence(kind, found)).decode())
        try:
            uid = found["metadata"]["uid"]
            await self._client.delete(kind, name, namespace=self._namespace, uid=uid, propagation="Background")
        except errors.NotFound:
            return
        log.info("removed %s %s", kind.kind, name)

    async def _store(self, key: str, text: str) -> None:
        body: dict[str, Any] = {"metadata": {"name": self._stored_in}, "data": {key: text}}
        try:
            await self._client.create(kinds.CONFIG_MAPS, body, namespace=self._namespace)
        except errors.AlreadyExists:
            await self._client.patch(
                kinds.CONFIG_MAPS, self._stored_in, {"data": {key: text}}, namespace=self._namespace
            )

    async def _exists(self, kind: Kind, name: str) -> bool:
        try:
            await self._client.get(kind, name, namespace=self._namespace)
        except errors.NotFound:
            return False
        return True


def _key(kind: Kind, name: str) -> str:
    return f"{kind.plural}.{name}"


def _essence(kind: Kind, found: dict[str, Any]) -> dict[str, Any]:
    """The object without what the API server and controllers added."""
    meta = found["metadata"]
    annotations = {
        key: value for key, value in meta.get("annotations", {}).items() if not key.startswith(_OF_CONTROLLERS)
    }
    kept = {"name": meta["name"], "labels": meta.get("labels", {}), "annotations": annotations}
    annotated = found["spec"]["template"].get("metadata", {}).get("annotations", {})
    annotated.pop(_RESTARTED, None)
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": kept, "spec": found["spec"]}
