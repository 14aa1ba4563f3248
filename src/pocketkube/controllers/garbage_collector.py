"""Objects whose owners are gone go too: in the background, before their owner (foreground), or not at all (orphan).

The collector reads the store itself: it needs the metadata of every object of every kind, also of kinds that are
defined later, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from apportion.apis.kinds import Kind
from apportion.apis.meta import Bare, OwnerReference
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.workqueue import WorkQueue
from pocketkube.api.content.conversion import bucket_of
from pocketkube.api.registry import Registry, Resource
from pocketkube.api.storage.store import Bucket, Change, Store, Stored

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
_DEFINITIONS = Bucket("apiextensions.k8s.io", "customresourcedefinitions")
_EVENTS = (Bucket("", "events"), Bucket("events.k8s.io", "events"))
_RESCAN_SECONDS = 0.2


@dataclass
class _Node:
    """One object in the graph of owners."""

    bucket: Bucket
    namespace: str
    name: str
    owners: list[OwnerReference]
    finalizers: list[str]
    deleting: bool

    @property
    def waits_for_dependents(self) -> bool:
        return self.deleting and FOREGROUND in self.finalizers


class GarbageCollector:
    """Follows every object and deletes those that nobody owns any more."""

    name = "garbage"

    def __init__(self, client: Client, registry: Registry, store: Store) -> None:
        self._client = client
        self._registry = registry
        self._store = store
        self._nodes: dict[str, _Node] = {}  # by uid
        self._dependents: dict[str, set[str]] = {}  # uid of an owner -> uids
        self._followed: dict[Bucket, Callable[[], None]] = {}
        self._queue: WorkQueue[str] = WorkQueue("garbage", longest_backoff=5.0)

    def subscribe(self) -> None:
        self._follow_all()
        self._store.listen(_DEFINITIONS, lambda _: self._follow_soon())

    async def run(self) -> None:
        try:
            await self._queue.run(self._look, workers=4)
        finally:
            self._queue.close()
            for stop in self._followed.values():
                stop()

    # The graph

    def _follow_soon(self) -> None:
        """A kind came or went: its resources appear in the registry a moment later."""
        self._follow_all()
        asyncio.get_running_loop().call_later(_RESCAN_SECONDS, self._follow_all)

    def _follow_all(self) -> None:
        for resource in self._registry:
            bucket = bucket_of(resource)
            if bucket in self._followed or bucket in _EVENTS:
                continue
            self._followed[bucket] = self._store.listen(bucket, partial(self._note, bucket))
            for stored in self._store.items(bucket):
                self._enter(bucket, stored)

    def _note(self, bucket: Bucket, change: Change) -> None:
        if change.type == "DELETED":
            self._leave(change.new.uid)
        else:
            self._enter(bucket, change.new)

    def _enter(self, bucket: Bucket, stored: Stored) -> None:
        meta = msgspec.json.decode(stored.data, type=Bare, strict=False).metadata
        uid = stored.uid
        before = self._nodes.get(uid)
        node = _Node(bucket, meta.namespace, meta.name, meta.owner_references, meta.finalizers, meta.deleting)
        if before is None and not node.owners and not node.finalizers:
            self._nodes[uid] = node
            return
        for reference in before.owners if before else ():
            self._forget(uid, reference)
        self._nodes[uid] = node
        for reference in node.owners:
            self._dependents.setdefault(reference.uid, set()).add(uid)
        if node.owners or node.deleting:
            self._queue.add(uid)
        if node.waits_for_dependents and not (before and before.waits_for_dependents):
            for dependent in self._dependents.get(uid, ()):
                self._queue.add(dependent)

    def _leave(self, uid: str) -> None:
        node = self._nodes.pop(uid, None)
        for dependent in self._dependents.get(uid, ()):
            self._queue.add(dependent)
        for reference in node.owners if node else ():
            self._forget(uid, reference)
            self._queue.add(reference.uid)

    def _forget(self, uid: str, owner: OwnerReference) -> None:
        siblings = self._dependents.get(owner.uid)
        if siblings is not None:
            siblings.discard(uid)
            if not siblings:
                del self._dependents[owner.uid]

    # Collecting

    async def _look(self, uid: str) -> float | None:
        node = self._nodes.get(uid)
        if node is None:
            return None
        if node.deleting and ORPHAN in node.finalizers:
            await self._let_go(uid, node)
        elif node.waits_for_dependents:
            await self._finish_foreground(uid, node)
        elif node.owners and not node.deleting:
            await self._judge(uid, node)
        return None

    async def _judge(self, uid: str, node: _Node) -> None:
        waiting: list[OwnerReference] = []
        gone: list[OwnerReference] = []
        solid: list[OwnerReference] = []
        for each in node.owners:
            owner = self._owner(node, each)
            (gone if owner is None else waiting if owner.waits_for_dependents else solid).append(each)
        if solid:
            if waiting or gone:
                await self._keep_owners(uid, node, solid)
        elif waiting and self._dependents.get(uid):
            await self._delete(uid, node, "Foreground")
        elif gone or waiting:
            await self._delete(uid, node, "Background")

    def _owner(self, node: _Node, reference: OwnerReference) -> _Node | None:
        """The owner, unless it is gone or in another namespace, where it cannot own anything."""
        owner = self._nodes.get(reference.uid)
        return owner if owner is not None and owner.namespace in ("", node.namespace) else None

    async def _finish_foreground(self, uid: str, node: _Node) -> None:
        blocking = False
        for each in list(self._dependents.get(uid, ())):
            dependent = self._nodes.get(each)
            if dependent is None:
                continue
            reference = next((owner for owner in dependent.owners if owner.uid == uid), None)
            blocking = blocking or bool(reference and reference.block_owner_deletion)
            self._queue.add(each)
        if not blocking:
            await self._drop_finalizer(uid, node, FOREGROUND)

    async def _let_go(self, uid: str, node: _Node) -> None:
        for each in list(self._dependents.get(uid, ())):
            dependent = self._nodes.get(each)
            if dependent is not None:
                await self._keep_owners(each, dependent, [o for o in dependent.owners if o.uid != uid])
        await self._drop_finalizer(uid, node, ORPHAN)

    async def _keep_owners(self, uid: str, node: _Node, owners: list[OwnerReference]) -> None:
        kind = self._kind(node)
        if kind is None:
            return
        patch = {"metadata": {"uid": uid, "ownerReferences": [msgspec.to_builtins(each) for each in owners]}}
        try:
            await self._client.patch(kind, node.name, patch, namespace=node.namespace or None)
        except (errors.NotFound, errors.Conflict):
            return

    async def _drop_finalizer(self, uid: str, node: _Node, finalizer: str) -> None:
        kind = self._kind(node)
        if kind is None:
            return
        left = [each for each in node.finalizers if each != finalizer]
        try:
            patch = {"metadata": {"uid": uid, "finalizers": left}}
            await self._client.patch(kind, node.name, patch, namespace=node.namespace or None)
        except (errors.NotFound, errors.Conflict):
            return

    async def _delete(self, uid: str, node: _Node, propagation: str) -> None:
        kind = self._kind(node)
        if kind is None:
            return
        if ORPHAN in node.finalizers:
            propagation = "Orphan"
        try:
            await self._client.delete(
                kind, node.name, namespace=node.namespace or None, uid=uid, propagation=propagation
            )
        except (errors.NotFound, errors.Conflict, errors.MethodNotAllowed):
            return

    def _kind(self, node: _Node) -> Kind | None:
        found: Resource | None = None
        for resource in self._registry:
            if bucket_of(resource) == node.bucket:
                found = resource
                break
        if found is None:
            return None
        return Kind(found.group, found.version, found.plural, found.kind, namespaced=found.namespaced)
