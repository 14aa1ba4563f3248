"""Informers of the owners of pods: of each kind from the moment at which a pod of ours, or an owner of one, names it.

The table of owner kinds says which kinds are of interest. What the API server calls them, and in which version, it is
asked for itself. A kind that is not installed, or that may not be read, costs nothing: pods are then read by their own
labels. It is looked for again now and then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from apportion.apis.kinds import Kind
from apportion.apis.meta import Wire
from apportion.cluster import errors, wire
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.cluster.optional_informers import ABSENT_SECONDS, RETRY_SECONDS, probe
from apportion.view.groups.owners import Following, KindKey
from apportion.view.view import View

T = TypeVar("T")

log = logging.getLogger(__name__)

RELEASE_SECONDS = 0.25  # how often pods that wait for their owner are looked at
_PREPARING_SECONDS = 0.02


class _GroupVersion(Wire):
    group_version: str = ""


class _ApiGroup(Wire):
    preferred_version: _GroupVersion = msgspec.field(default_factory=_GroupVersion)
    versions: list[_GroupVersion] = []


class _ApiResource(Wire):
    name: str = ""
    kind: str = ""
    namespaced: bool = True


class _ApiResources(Wire):
    resources: list[_ApiResource] = []


class OwnerInformers:
    """`pods` are the informer by which pods get into the view; `only_namespace` as with them."""

    def __init__(self, client: Client, view: View, pods: Informer[Any], *, only_namespace: str | None = None) -> None:
        self._client = client
        self._view = view
        self._pods = pods
        self._namespace = only_namespace
        self._wanted: asyncio.Queue[KindKey] = asyncio.Queue()
        self._starting: set[KindKey] = set()
        self._informers: dict[KindKey, Informer[Any]] = {}
        self._tasks: dict[KindKey, asyncio.Task[None]] = {}

    async def synced(self) -> None:
        """The owners of all pods that the first list had are known."""
        await self._pods.synced()
        while self._starting:  # noqa: ASYNC110  owners that were read can want further kinds
            await asyncio.sleep(_PREPARING_SECONDS)

    async def load(self) -> None:
        """Read once the owners of the pods that are known, as far as they can be read."""
        self._view.group_objects.follow_owners(self._want)
        while not self._wanted.empty():
            key = self._wanted.get_nowait()
            try:
                informer = await self._prepared(key)
                await informer.load()
            except errors.ClusterError as error:
                self._unreadable(key, error)
            else:
                self._view.group_objects.set_following(key, Following.FOLLOWED)
            self._starting.discard(key)
        self._view.group_objects.release_all()

    async def run(self) -> None:
        """Follow until cancelled."""
        self._view.group_objects.follow_owners(self._want, self._stop)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._release())
            for key, informer in self._informers.items():  # that were loaded before
                self._tasks[key] = tasks.create_task(informer.run())
            while True:
                key = await self._wanted.get()
                if key in self._view.groups.owners.table and key not in self._tasks:
                    self._tasks[key] = tasks.create_task(self._follow(key))

    def _stop(self, kinds: Iterable[KindKey]) -> None:
        """What was kept of these objects is not what is of interest now."""
        for key in kinds:
            task = self._tasks.pop(key, None)
            if task is not None:
                task.cancel()
            self._informers.pop(key, None)
            self._starting.discard(key)

    def _want(self, key: KindKey) -> None:
        self._starting.add(key)
        self._wanted.put_nowait(key)

    async def _follow(self, key: KindKey) -> None:
        while (wait := await self._not_served(key)) is not None:
            self._starting.discard(key)
            await asyncio.sleep(wait)
        self._starting.add(key)
        informer = self._informers[key]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            await informer.synced()
            self._view.group_objects.set_following(key, Following.FOLLOWED)
            self._starting.discard(key)

    async def _not_served(self, key: KindKey) -> float | None:
        """None if the kind can be read, else when to try again, in seconds."""
        try:
            informer = await self._prepared(key)
            await probe(self._client, informer.kind, self._namespace)
        except (errors.NotFound, errors.Forbidden) as error:
            self._unreadable(key, error)
            return ABSENT_SECONDS
        except errors.ClusterError as error:
            log.debug("%s: %s", key[1], error)
            return RETRY_SECONDS
        return None

    async def _release(self) -> None:
        while True:
            await asyncio.sleep(RELEASE_SECONDS)
            self._view.group_objects.release_overdue()

    def _unreadable(self, key: KindKey, error: errors.ClusterError) -> None:
        if key in self._starting:
            log.info("owners of kind %s are not followed: %s", ".".join(reversed(key)).rstrip("."), error)
        self._informers.pop(key, None)
        self._view.group_objects.set_following(key, Following.UNREADABLE)

    async def _prepared(self, key: KindKey) -> Informer[Any]:
        """Its informer; raises NotFound if no version of the API group has the kind."""
        known = self._informers.get(key)
        if known is not None:
            return known
        kind = await self._discovered(*key)
        into = self._view.groups.owners.table.owner_type(*key)
        informer = self._informers[key] = Informer(self._client, kind, into=into, namespace=self._namespace)
        informer.on_change(self._view.group_objects.owner_changed)
        return informer

    async def _discovered(self, group: str, kind: str) -> Kind:
        for path in await self._versions(group):
            found = await self._get(path, _ApiResources)
            for resource in found.resources:
                if resource.kind == kind and "/" not in resource.name:
                    version = path.rpartition("/")[2]
                    return Kind(group, version, resource.name, kind, resource.namespaced)
        raise errors.NotFound(404, "NotFound", f"no version of the API group {group!r} has the kind {kind}")

    async def _versions(self, group: str) -> Iterable[str]:
        if not group:
            return ("/api/v1",)
        found = await self._get(f"/apis/{group}", _ApiGroup)
        versions = (found.preferred_version, *found.versions)
        return dict.fromkeys(f"/apis/{each.group_version}" for each in versions if each.group_version)

    async def _get(self, path: str, into: type[T]) -> T:
        try:
            return wire.decode(await self._client.raw("GET", path), into)
        except msgspec.DecodeError as error:
            raise errors.ClusterError(f"GET {path}: {error}") from None
