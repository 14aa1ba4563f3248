"""A local copy of one kind's objects that follows the server and never misses a change.

List, then watch from the list's version. When the stream ends in order, the watch goes on from the last
version seen. When it breaks or its version is too old, everything is listed again and compared with
what we had: objects that vanished meanwhile are reported as deleted, and one that was deleted and made
again under its name is reported as both. So listeners see every object come, change and go, in order
per object, though several changes may arrive as one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from apportion.apis.kinds import Kind
from apportion.cluster import errors, watching, wire
from apportion.cluster.client import Client
from apportion.cluster.log_levels import TRACE

T = TypeVar("T")
Key = tuple[str, str]
Listener = Callable[[T | None, T | None], None]
Index = Callable[[T], Iterable[str]]

log = logging.getLogger(__name__)

WATCH_SECONDS = 90  # at least; a connection that was lost silently is detected soon after
FIRST_BACKOFF_SECONDS = 0.1
LONGEST_BACKOFF_SECONDS = 5.0


class Informer(Generic[T]):
    """All objects of one kind (in one namespace, or matching selectors), by name and by index."""

    def __init__(
        self,
        client: Client,
        kind: Kind,
        *,
        into: type[T],
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        indexes: Mapping[str, Index[T]] | None = None,
        watch_seconds: int = WATCH_SECONDS,
        resync_seconds: float | None = None,
    ) -> None:
        """`resync_seconds`: how often listeners receive every object again, as unchanged (old is new)."""
        self.kind = kind
        self._client = client
        self._into = into
        self._scope: dict[str, Any] = {"namespace": namespace, "labels": labels, "fields": fields}
        self._objects: dict[Key, T] = {}
        self._indexes: dict[str, dict[str, dict[Key, T]]] = {name: {} for name in indexes or {}}
        self._functions: dict[str, Index[T]] = dict(indexes or {})
        self._listeners: list[Listener[T]] = []
        self._synced = asyncio.Event()
        self._version = ""
        self._watch_seconds = watch_seconds
        self._resync_seconds = resync_seconds

    # What is known

    def get(self, name: str, namespace: str | None = None) -> T | None:
        return self._objects.get((namespace or "", name))

    def items(self) -> list[T]:
        return list(self._objects.values())

    def indexed(self, index: str, key: str) -> list[T]:
        return list(self._indexes[index].get(key, {}).values())

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._objects.values()))

    @property
    def has_synced(self) -> bool:
        return self._synced.is_set()

    @property
    def version(self) -> str:
        """The resourceVersion up to which every change has been seen."""
        return self._version

    async def synced(self) -> None:
        """Wait until the first list is complete and its listeners have run."""
        await self._synced.wait()

    def on_change(self, listener: Listener[T]) -> None:
        """Call `listener(old, new)` at every change; what is there already is reported as new at once."""
        self._listeners.append(listener)
        for obj in list(self._objects.values()):
            self._tell(listener, None, obj)

    # Following the server

    async def load(self) -> None:
        """List once, without following; unlike `run` it lets errors out."""
        await self._list()

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            if self._resync_seconds is not None:
                group.create_task(self._resync(self._resync_seconds))

    async def _resync(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            for obj in list(self._objects.values()):
                for listener in self._listeners:
                    self._tell(listener, obj, obj)

    async def _follow(self) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            try:
                await self._list()
                backoff = FIRST_BACKOFF_SECONDS
                while True:
                    await self._watch()
                    await asyncio.sleep(FIRST_BACKOFF_SECONDS)  # no busy loop if the server ends each watch at once
            except errors.Gone:
                log.debug("%s: resourceVersion %s has expired, listing again", self.kind.plural, self._version)
            except errors.ClusterError as error:
                level = logging.WARNING if backoff > 1 else logging.DEBUG
                log.log(level, "%s: %s; listing again", self.kind.plural, error)
            await asyncio.sleep(backoff * random.uniform(0.5, 1.0))  # noqa: S311
            backoff = min(backoff * 2, LONGEST_BACKOFF_SECONDS)

    async def _list(self) -> None:
        listing = await self._client.list(self.kind, into=self._into, **self._scope)
        found = {_key(obj): obj for obj in listing.items}
        for key in [key for key in self._objects if key not in found]:
            self._change(key, None)
        for key, obj in found.items():
            old = self._objects.get(key)
            if old is None or wire.identify(old) != wire.identify(obj):
                self._change(key, obj)
        self._version = listing.resource_version
        log.debug("%s: listed, now %d at version %s", self.kind.plural, len(self._objects), self._version)
        self._synced.set()

    async def _watch(self) -> None:
        seconds = random.randint(self._watch_seconds, 2 * self._watch_seconds)  # noqa: S311  spreads reconnects
        watch = self._client.watch(
            self.kind, into=self._into, resource_version=self._version, timeout_seconds=seconds, **self._scope
        )
        async with aclosing(watch) as events:
            async for event in events:
                self._version = event.resource_version or self._version
                if event.object is not None:
                    self._change(_key(event.object), None if event.type == watching.DELETED else event.object)
                elif event.key is not None:
                    self._change(event.key, None)

    def _change(self, key: Key, new: T | None) -> None:
        old = self._objects.get(key)
        if old is None and new is None:
            return
        if old is not None and new is not None and wire.identify(old).uid != wire.identify(new).uid:
            self._change(key, None)
            old = None
        self._reindex(key, old, new)
        if new is None:
            del self._objects[key]
        else:
            self._objects[key] = new
        if log.isEnabledFor(TRACE):
            how = "deleted" if new is None else "added" if old is None else "changed"
            log.log(TRACE, "%s: %s %s", self.kind.plural, "/".join(part for part in key if part), how)
        for listener in self._listeners:
            self._tell(listener, old, new)

    def _reindex(self, key: Key, old: T | None, new: T | None) -> None:
        for name, function in self._functions.items():
            table = self._indexes[name]
            for value in function(old) if old is not None else ():
                entries = table.get(value)
                if entries is not None:
                    entries.pop(key, None)
                    if not entries:
                        del table[value]
            for value in function(new) if new is not None else ():
                table.setdefault(value, {})[key] = new  # type: ignore[assignment]

    def _tell(self, listener: Listener[T], old: T | None, new: T | None) -> None:
        try:
            listener(old, new)
        except Exception:
            log.exception("%s: error in a listener", self.kind.plural)


def _key(obj: Any) -> Key:
    identity = wire.identify(obj)
    return identity.namespace, identity.name
