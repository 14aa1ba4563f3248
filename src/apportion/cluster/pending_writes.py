"""What this process has written, or is about to write, and its informers have not shown yet.

A write is pending from `begin` (or `written`) until an informer shows the object in that version or a later one,
until the object is gone, or until it turns out that the write never happened (`drop`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from apportion.cluster import clock, wire

T = TypeVar("T")


@dataclass
class _Write(Generic[T]):
    since: float = math.inf  # when the server had it
    result: T | None = None
    version: int = 0
    removed: str = ""  # uid of an object that was removed


class PendingWrites(Generic[T]):
    """By key, usually the object's name or uid."""

    def __init__(self, now: Callable[[], float] = clock.elapsed) -> None:
        self._now = now
        self._writes: dict[str, _Write[T]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._writes

    def begin(self, key: str) -> None:
        """It is going to be written; the server may not have it yet."""
        self._writes[key] = _Write()

    def written(self, key: str, result: T | None = None) -> None:
        """The server has it, as `result` if that is known: from now on informers should show it soon."""
        version = version_of(result) if result is not None else 0
        known = self._writes.get(key)
        if known is None or version >= known.version:
            self._writes[key] = _Write(self._now(), result, version)

    def removed(self, key: str, uid: str) -> None:
        """The object of this uid is gone on the server."""
        self._writes[key] = _Write(self._now(), removed=uid)

    def shown(self, key: str, obj: T | None = None) -> bool:
        """An informer shows the object (None: that there is none); True if that ends a pending write."""
        write = self._writes.get(key)
        if write is None or (obj is not None and not _confirms(write, obj)):
            return False
        del self._writes[key]
        return True

    def drop(self, key: str) -> bool:
        """The write did not happen; True if it was pending."""
        return self._writes.pop(key, None) is not None

    def latest(self, key: str, obj: T) -> T | None:
        """The object as this process knows it: as shown, as written if that is newer, None if it was removed."""
        write = self._writes.get(key)
        if write is None:
            return obj
        uid = wire.identify(obj).uid
        if write.removed:
            return None if write.removed == uid else obj
        newer = write.result is not None and wire.identify(write.result).uid == uid and write.version > version_of(obj)
        return write.result if newer else obj

    def overdue(self, seconds: float) -> list[str]:
        """Keys that were written that long ago and not shown since."""
        limit = self._now() - seconds
        return [key for key, write in self._writes.items() if write.since <= limit]


def version_of(obj: object) -> int:
    """Kubernetes calls versions opaque; every API server counts upwards."""
    text = wire.identify(obj).resource_version
    return int(text) if text.isdecimal() else 0


def _confirms(write: _Write[T], obj: T) -> bool:
    if write.removed:
        return wire.identify(obj).uid != write.removed
    return version_of(obj) >= write.version
