"""Watches: the history of a collection from a revision on, as a stream of events that never reorders.

A watch with selectors sees objects come into and go out of its view: a change that makes an object match
is ADDED for it, one that makes it stop matching is DELETED (with the last state that matched). Every frame
is one line of JSON. A client that does not read is disconnected instead of being buffered without limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import msgspec

from pocketkube.api import limits, status
from pocketkube.api.storage.selectors import Selection
from pocketkube.api.storage.store import Bucket, Change, Compacted, Store, Stored

BOOKMARK_EVERY = 60.0
BOOKMARK_BEFORE_END = 2.0
LONGEST = 3600.0
BACKLOG = 50_000
AT_ONCE = 100  # events that are rendered before other clients have their turn

Frame = tuple[str, Stored]
Render = Callable[[Stored], bytes]


class Bookmark(Protocol):
    """Makes the object of a bookmark event."""

    def __call__(self, revision: int, *, initial_end: bool) -> bytes: ...


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What a client asked of a watch. `since` None means: begin with the current objects."""

    since: int | None
    timeout: float = LONGEST
    bookmarks: bool = False
    initial_events_end: bool = False


class Watches:
    """All open watches, so that a server can end them when it stops."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: set[Watch] = set()

    def open(
        self,
        bucket: Bucket,
        namespace: str,
        selection: Selection,
        options: WatchOptions,
        *,
        render: Render,
        bookmark: Bookmark,
    ) -> AsyncIterator[bytes]:
        """Frames until the client leaves, the time is over or the server stops. Listening begins at once."""
        try:
            backlog = self._backlog(bucket, options)
        except Compacted as error:
            return _single(_frame("ERROR", status.too_old(options.since or 0, error.oldest).encode().rstrip()))
        watch = Watch(self._store, namespace, selection, options, render, bookmark)
        watch.feed(backlog)
        unlisten = self._store.listen(bucket, watch.on_change)
        self._open.add(watch)

        def leave() -> None:
            unlisten()
            self._open.discard(watch)

        watch.leave = leave
        return watch

    def close(self) -> None:
        for watch in tuple(self._open):
            watch.finish()

    def __len__(self) -> int:
        return len(self._open)

    def _backlog(self, bucket: Bucket, options: WatchOptions) -> list[Change]:
        if options.since is None:
            revision = self._store.revision
            return [Change("ADDED", revision, item, None) for item in self._store.items(bucket)]
        return self._store.changes(bucket, options.since)


class Watch:
    """One client's stream: what it has not read yet, and when it ends."""

    def __init__(
        self,
        store: Store,
        namespace: str,
        selection: Selection,
        options: WatchOptions,
        render: Render,
        bookmark: Bookmark,
    ) -> None:
        self.leave: Callable[[], None] = lambda: None
        self._store = store
        self._namespace = namespace
        self._selection = selection
        self._name = selection.single_name
        self._options = options
        self._render = render
        self._bookmark = bookmark
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + options.timeout
        self._next_bookmark = self._bookmark_time()
        self._pending: deque[Frame] = deque()
        self._unread = 0  # bytes of changes that the client has not read
        self._initial = options.initial_events_end
        self._finished = False
        self._wake = asyncio.Event()

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> bytes:
        while not self._finished:
            now = self._loop.time()
            if self._initial:
                if self._pending:
                    return await self._take()
                self._initial = False
                return _frame("BOOKMARK", self._bookmark(self._store.revision, initial_end=True))
            if self._pending:
                return await self._take()
            if now >= self._next_bookmark:
                self._next_bookmark = self._bookmark_time()
                return _frame("BOOKMARK", self._bookmark(self._store.revision, initial_end=False))
            if now >= self._end:
                break
            await self._wait(min(self._end, self._next_bookmark) - now)
        await self.aclose()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.finish()
        self.leave()

    def finish(self) -> None:
        self._finished = True
        self._wake.set()

    def on_change(self, change: Change) -> None:
        if change.revision <= (self._options.since or 0):
            return
        frame = self._seen(change)
        if frame is None:
            return
        self._unread += len(frame[1].data)
        if len(self._pending) >= BACKLOG or self._unread > limits.MAX_BACKLOG_BYTES:
            self._pending.clear()
            self.finish()
            return
        self._pending.append(frame)
        self._wake.set()

    def feed(self, changes: Iterable[Change]) -> None:
        self._pending.extend(frame for change in changes if (frame := self._seen(change)) is not None)

    async def _take(self) -> bytes:
        """The next events. A long list is sent in pieces, with other clients' turns in between."""
        taken: list[bytes] = []
        size = 0
        while self._pending and len(taken) < AT_ONCE and size < limits.LARGE:
            kind, stored = self._pending.popleft()
            self._unread = max(0, self._unread - len(stored.data))
            taken.append(_frame(kind, self._render(stored)))
            size += len(taken[-1])
        if self._pending:
            await asyncio.sleep(0)
        return b"".join(taken)

    async def _wait(self, seconds: float) -> None:
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _bookmark_time(self) -> float:
        if not self._options.bookmarks:
            return float("inf")
        now = self._loop.time()
        before_end = self._end - BOOKMARK_BEFORE_END
        return min(now + BOOKMARK_EVERY, before_end) if now < before_end else now + BOOKMARK_EVERY

    def _seen(self, change: Change) -> Frame | None:
        """The event as this client sees it, or None."""
        key = change.new.key
        if (self._namespace and key.namespace != self._namespace) or (
            self._name is not None and key.name != self._name
        ):
            return None
        if not self._selection:
            return change.type, change.new
        before = change.old is not None and self._selection.matches(change.old)
        after = change.type != "DELETED" and self._selection.matches(change.new)
        if after:
            return ("MODIFIED" if before else "ADDED"), change.new
        if not before:
            return None
        if change.type == "DELETED":
            return "DELETED", change.new
        assert change.old is not None
        return "DELETED", _restamped(change.old, change.revision)


def _restamped(stored: Stored, revision: int) -> Stored:
    obj = stored.decode()
    obj["metadata"]["resourceVersion"] = str(revision)
    return Stored(stored.key, revision, msgspec.json.encode(obj), stored.uid, stored.labels, stored.fields)


def _frame(kind: str, body: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)


async def _single(frame: bytes) -> AsyncIterator[bytes]:
    yield frame
