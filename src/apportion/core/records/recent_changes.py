"""What changed lately, in order, for any number of readers: each keeps its own position."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class RecentChanges(Generic[T]):
    """Old entries are dropped; a reader that has not read them must look at everything."""

    def __init__(self, most: int) -> None:
        self._entries: list[T] = []
        self._dropped = 0
        self._most = most

    @property
    def end(self) -> int:
        return self._dropped + len(self._entries)

    def add(self, entry: T) -> None:
        entries = self._entries
        if len(entries) >= self._most:
            half = self._most // 2
            del entries[:half]
            self._dropped += half
        entries.append(entry)

    def since(self, position: int) -> set[T] | None:
        """What changed since the log ended there; None if that was too long ago."""
        return set(self._entries[position - self._dropped :]) if position >= self._dropped else None
