"""What happened to the fleet, as a log with positions that any number of readers follow.

Every change that can change a decision, an answer of `why` or the scene moves the position.
The log is bounded: a reader that is too far behind has to read everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from apportion.apis.identities import NO_NODE, NO_POD, NodeName, PodUID
from apportion.core.cluster_changes import Change, Happened

__all__ = ["Change", "ChangeLog", "ChangeReader", "Happened"]

MOST_CHANGES = 20_000


class ChangeLog:
    """Positions count all changes that were ever noted."""

    def __init__(self, most: int = MOST_CHANGES) -> None:
        self.position = 0
        self._recent: deque[Change] = deque(maxlen=most)
        self._listeners: list[Callable[[], None]] = []
        self._display_listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None], *, display: bool = False) -> None:
        """Call the listener after each change that decisions depend on, with `display` after every change.

        It must not read the fleet there, only wake the code that does.
        """
        (self._display_listeners if display else self._listeners).append(listener)

    def note(self, kind: Happened, node: NodeName = NO_NODE, pod: PodUID = NO_POD) -> None:
        self._recent.append(Change(kind, node, pod))
        self.position += 1
        for listener in self._display_listeners:
            listener()
        if kind is not Happened.DISPLAY_CHANGED:
            for listener in self._listeners:
                listener()

    def note_display(self, before: int) -> None:
        """What is displayed changed; noted unless the log has moved since that position anyway."""
        if self.position == before:
            self.note(Happened.DISPLAY_CHANGED)

    def since(self, position: int) -> list[Change]:
        """What happened after that position, oldest first."""
        missed = self.position - position
        if missed > len(self._recent):
            return [Change(Happened.EVERYTHING)]
        found = list(islice(reversed(self._recent), missed))
        found.reverse()
        return found

    def reader(self) -> ChangeReader:
        """A reader that has seen nothing yet."""
        return ChangeReader(self)


class ChangeReader:
    """Remembers how far one reader has come."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self._position = 0

    def take(self) -> list[Change]:
        """What happened since the last call."""
        found = self._log.since(self._position)
        self._position = self._log.position
        return found
