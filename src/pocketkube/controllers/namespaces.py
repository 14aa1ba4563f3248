"""Namespaces that are deleted: everything in them goes first, then they do."""

from __future__ import annotations

import asyncio

import msgspec

from apportion.apis.kinds import NAMESPACES, Kind
from apportion.cluster import errors
from pocketkube.api.content.conversion import bucket_of
from pocketkube.api.registry import Registry, Resource
from pocketkube.api.storage.store import Bucket, Store
from pocketkube.clock import stamp
from pocketkube.controllers.controller import Control, Json, Key, Reconciler, deleting, set_condition

FINALIZER = "kubernetes"
_LOOK_SECONDS = 0.2
# A real controller waits for 5 s. Whoever deletes a namespace and what is in it, one by one as `kubectl delete -f`
# does, still finds everything there.
GRACE_SECONDS = 1.0
_EVENTS = (Bucket("", "events"), Bucket("events.k8s.io", "events"))
AT_ONCE = 20


class Namespaces(Reconciler):
    name = "namespaces"
    component = "namespace-controller"

    def __init__(self, control: Control, registry: Registry, store: Store) -> None:
        super().__init__(control)
        self._registry = registry
        self._store = store
        self._since: dict[str, float] = {}  # by uid

    def subscribe(self) -> None:
        self.informers.of(NAMESPACES).on_change(lambda _, new: self._look(new))

    def _look(self, namespace: Json | None) -> None:
        if namespace is not None and deleting(namespace):
            self.queue.add(("", namespace["metadata"]["name"]))

    async def reconcile(self, key: Key) -> float | None:
        namespace = self.informers.of(NAMESPACES).get(key[1])
        if namespace is None or not deleting(namespace):
            return None
        uid, now = namespace["metadata"]["uid"], self.clock.now()
        wait = self._since.setdefault(uid, now) + GRACE_SECONDS - now
        if wait > 0:
            return wait
        left = await self._empty(key[1])
        if left:
            await self._report(namespace, left)
            return _LOOK_SECONDS
        self._since.pop(uid, None)
        finalizers = [each for each in namespace["spec"].get("finalizers") or () if each != FINALIZER]
        body = {**namespace, "spec": {**namespace["spec"], "finalizers": finalizers}}
        path = NAMESPACES.path(name=key[1], subresource="finalize")
        try:
            await self.client.raw("PUT", path, body=msgspec.json.encode(body))
        except errors.NotFound:
            return None
        except errors.Conflict:
            return _LOOK_SECONDS
        return None

    async def _empty(self, namespace: str) -> dict[str, int]:
        """Delete what is there; the answer counts what remains, by resource."""
        left: dict[str, int] = {}
        seen: set[Bucket] = set()
        last = [each for each in self._registry if bucket_of(each) in _EVENTS]
        first = [each for each in self._registry if bucket_of(each) not in _EVENTS]
        for resource in (*first, *last):
            bucket = bucket_of(resource)
            if not resource.namespaced or bucket in seen or "delete" not in resource.verbs:
                continue
            seen.add(bucket)
            there = self._store.items(bucket, namespace)
            for at in range(0, len(there), AT_ONCE):
                names = [stored.key.name for stored in there[at : at + AT_ONCE] if not deleting(stored.decode())]
                await asyncio.gather(*(self._delete(resource, namespace, name) for name in names))
            remaining = len(self._store.items(bucket, namespace))
            if remaining:
                left[resource.plural if not resource.group else f"{resource.plural}.{resource.group}"] = remaining
        return left

    async def _delete(self, resource: Resource, namespace: str, name: str) -> None:
        kind = Kind(resource.group, resource.version, resource.plural, resource.kind)
        try:
            await self.client.delete(kind, name, namespace=namespace, propagation="Background")
        except (errors.NotFound, errors.Conflict, errors.MethodNotAllowed):
            return

    async def _report(self, namespace: Json, left: dict[str, int]) -> None:
        text = ", ".join(f"{name} has {count} resource instances" for name, count in sorted(left.items()))
        conditions = set_condition(
            (namespace.get("status") or {}).get("conditions") or (),
            "NamespaceContentRemaining",
            "True",
            "SomeResourcesRemain",
            f"Some resources are remaining: {text}",
            stamp(self.clock.now()),
        )
        await self.set_status(NAMESPACES, namespace, {"conditions": conditions})
