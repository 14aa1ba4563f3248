"""The server's memory: encoded objects under one global revision, with the recent past kept for watches.

A *bucket* is all objects of one group and plural, whatever version a client asks for. Objects are kept
as encoded JSON and decoded on need: decoding a pod is several times cheaper than copying one, and lists
and watches of whole objects never decode at all. Everything here is synchronous and runs on one event
loop, so each call is atomic; optimistic concurrency (`expected`) guards what happens between calls.

The history of a bucket is bounded. From it the store replays watches and rebuilds a list as it was at an
earlier revision (for `continue`); what has fallen out of it is `Expired`, as after an etcd compaction.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple

import msgspec

from pocketkube.api import limits

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]
FIRST_REVISION = 1
HISTORY = 8192


class Bucket(NamedTuple):
    """Where objects of one resource are kept."""

    group: str
    plural: str


class Key(NamedTuple):
    """An object's place in its bucket; cluster-scoped objects have an empty namespace."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """One version of one object. `labels` and `fields` let selectors work without decoding."""

    key: Key
    revision: int
    data: bytes
    uid: str
    labels: Mapping[str, str]
    fields: Mapping[str, str]

    def decode(self) -> dict[str, Any]:
        """A fresh dict that the caller may change."""
        obj: dict[str, Any] = msgspec.json.decode(self.data)
        return obj


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """One step of history. For DELETED, `new` is the last state, stamped with the revision of deletion."""

    type: ChangeType
    revision: int
    new: Stored
    old: Stored | None

    @property
    def size(self) -> int:
        """Bytes of its versions, which it may be the last to refer to."""
        return len(self.new.data) + (len(self.old.data) if self.old is not None else 0)


class StoreError(Exception):
    """Base of what a write or a look into the past can run into."""


class Exists(StoreError):
    """Create: the key is taken."""


class Missing(StoreError):
    """Update or delete: nothing is there."""


class Stale(StoreError):
    """The object is not at the expected revision any more."""


class Compacted(StoreError):
    """The asked-for revision is older than the history; `oldest` is the first one still known."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"history begins at revision {oldest}")
        self.oldest = oldest


class Future(StoreError):
    """The asked-for revision has not been reached yet."""


class TooLarge(StoreError):
    """Create or update: the object is larger than the store takes."""


class Full(StoreError):
    """Create or update: all objects together are larger than the store takes."""


FieldsOf = Callable[[Bucket, dict[str, Any]], Mapping[str, str]]
Listener = Callable[[Change], None]


class _BucketState:
    """The objects, the past and the listeners of one bucket."""

    __slots__ = ("floor", "history", "history_bytes", "listeners", "objects", "order")

    def __init__(self, floor: int) -> None:
        self.objects: dict[Key, Stored] = {}
        self.order: list[Key] | None = None
        self.history: deque[Change] = deque()
        self.history_bytes = 0
        self.floor = floor
        self.listeners: dict[Listener, None] = {}


class Store:
    """All objects of a cluster, in memory."""

    def __init__(self, *, fields_of: FieldsOf | None = None, history: int = HISTORY) -> None:
        self.revision = FIRST_REVISION
        self.size = 0  # bytes of all objects
        self._sizes: Counter[str] = Counter()  # by namespace
        self._fields_of = fields_of or (lambda _bucket, _obj: {})
        self._history = history
        self._history_bytes = 0
        self._buckets: dict[Bucket, _BucketState] = {}

    # Reading

    def get(self, bucket: Bucket, namespace: str, name: str) -> Stored | None:
        return self._state(bucket).objects.get(Key(namespace, name))

    def items(self, bucket: Bucket, namespace: str = "") -> list[Stored]:
        """Current objects in key order; all namespaces if none is given."""
        state = self._state(bucket)
        objects = state.objects
        return [objects[key] for key in _order(state) if not namespace or key.namespace == namespace]

    def items_at(self, bucket: Bucket, namespace: str, revision: int) -> list[Stored]:
        """The same as it was at an earlier revision."""
        if revision > self.revision:
            raise Future
        state = self._state(bucket)
        if revision < state.floor:
            raise Compacted(state.floor)
        if not state.history or state.history[-1].revision <= revision:
            return self.items(bucket, namespace)
        objects = dict(state.objects)
        for change in reversed(state.history):
            if change.revision <= revision:
                break
            if change.old is None:
                objects.pop(change.new.key, None)
            else:
                objects[change.new.key] = change.old
        return [objects[key] for key in sorted(objects) if not namespace or key.namespace == namespace]

    def count(self, bucket: Bucket) -> int:
        return len(self._state(bucket).objects)

    def buckets(self) -> Iterator[Bucket]:
        return iter(tuple(self._buckets))

    # Writing

    def create(
        self, bucket: Bucket, namespace: str, name: str, obj: dict[str, Any], *, most: int = limits.MAX_BUILTIN_OBJECT
    ) -> Stored:
        """Keep a new object of at most so many bytes; its `metadata.resourceVersion` is stamped in place."""
        state, key = self._state(bucket), Key(namespace, name)
        if key in state.objects:
            raise Exists(name)
        stored = self._stamp(bucket, key, obj, most)
        self._grow(namespace, len(stored.data))
        state.objects[key] = stored
        state.order = None
        self._publish(state, Change("ADDED", stored.revision, stored, None))
        return stored

    def update(
        self,
        bucket: Bucket,
        namespace: str,
        name: str,
        obj: dict[str, Any],
        *,
        expected: int | None = None,
        most: int = limits.MAX_BUILTIN_OBJECT,
    ) -> Stored:
        """Replace an object, if it is still at the expected revision."""
        state, key = self._state(bucket), Key(namespace, name)
        old = self._current(state, key, expected)
        stored = self._stamp(bucket, key, obj, most, len(old.data))
        self._grow(namespace, len(stored.data) - len(old.data))
        state.objects[key] = stored
        self._publish(state, Change("MODIFIED", stored.revision, stored, old))
        return stored

    def delete(self, bucket: Bucket, namespace: str, name: str, *, expected: int | None = None) -> Stored:
        """Remove an object and answer its last state, which carries the revision of the deletion."""
        state, key = self._state(bucket), Key(namespace, name)
        old = self._current(state, key, expected)
        last = self._stamp(bucket, key, old.decode())
        self._grow(namespace, -len(old.data))
        del state.objects[key]
        state.order = None
        self._publish(state, Change("DELETED", last.revision, last, old))
        return last

    # Watching

    def changes(self, bucket: Bucket, since: int) -> list[Change]:
        """What happened after a revision, oldest first."""
        state = self._state(bucket)
        if since < state.floor:
            raise Compacted(state.floor)
        newer = 0
        for change in reversed(state.history):
            if change.revision <= since:
                break
            newer += 1
        return list(islice(state.history, len(state.history) - newer, None))

    def listen(self, bucket: Bucket, listener: Listener) -> Callable[[], None]:
        """Call the listener with every later change, at once and in order; answers how to stop that."""
        state = self._state(bucket)
        listeners = state.listeners
        listeners[listener] = None

        def stop() -> None:
            listeners.pop(listener, None)
            if not (listeners or state.objects or state.history):
                self._buckets.pop(bucket, None)

        return stop

    def compact(self) -> None:
        """Forget the past, as after an etcd compaction: for tests of clients that come too late."""
        for state in self._buckets.values():
            state.history.clear()
            state.history_bytes = self._history_bytes = 0
            state.floor = self.revision

    def _state(self, bucket: Bucket) -> _BucketState:
        state = self._buckets.get(bucket)
        if state is None:
            state = self._buckets[bucket] = _BucketState(FIRST_REVISION)
        return state

    def _stamp(self, bucket: Bucket, key: Key, obj: dict[str, Any], most: int | None = None, before: int = 0) -> Stored:
        revision = self.revision + 1
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(revision)
        data = msgspec.json.encode(obj)
        if most is not None and len(data) > most:
            raise TooLarge(key.name)
        stored = Stored(
            key=key,
            revision=revision,
            data=data,
            uid=metadata.get("uid") or "",
            labels=metadata.get("labels") or {},
            fields=self._fields_of(bucket, obj),
        )
        if most is not None and self._is_full(key.namespace, len(data) - before):
            raise Full
        self.revision = revision  # only after the encoder accepted the object
        return stored

    def _is_full(self, namespace: str, more: int) -> bool:
        if more <= 0:
            return False
        full = bool(namespace) and self._sizes[namespace] + more > limits.MAX_NAMESPACE
        return full or self.size + more > limits.MAX_STORE

    def _grow(self, namespace: str, more: int) -> None:
        self.size += more
        self._sizes[namespace] += more
        if not self._sizes[namespace]:
            del self._sizes[namespace]

    def _current(self, state: _BucketState, key: Key, expected: int | None) -> Stored:
        old = state.objects.get(key)
        if old is None:
            raise Missing(key.name)
        if expected is not None and old.revision != expected:
            raise Stale(key.name)
        return old

    def _publish(self, state: _BucketState, change: Change) -> None:
        state.history.append(change)
        state.history_bytes += change.size
        self._history_bytes += change.size
        if len(state.history) > self._history:
            self._forget_oldest(state)
        while self._history_bytes > limits.MAX_HISTORY_BYTES:
            self._forget_oldest(max(self._buckets.values(), key=lambda each: each.history_bytes))
        for listener in tuple(state.listeners):
            listener(change)

    def _forget_oldest(self, state: _BucketState) -> None:
        oldest = state.history.popleft()
        state.history_bytes -= oldest.size
        self._history_bytes -= oldest.size
        state.floor = oldest.revision


def _order(state: _BucketState) -> list[Key]:
    if state.order is None:
        state.order = sorted(state.objects)
    return state.order
