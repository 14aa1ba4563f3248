"""The open connections of a server, and which of them is closed when there are too many.

A client that completes its requests promptly must get through whatever others do. So a connection is given up in this
order: one that has not completed a request yet, one that is in the middle of a later request, one that is idle. Within
each the oldest of the client address with the most connections is closed; a request that is complete is never.
If bodies take too many bytes, the largest one is given up, again of the address that holds the most.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field


class Phase(enum.IntEnum):
    """Where a connection is, in the order in which connections are given up."""

    OPENING = 0
    """The TLS handshake, or the first request, is not complete."""
    READING = 1
    """In the middle of a later request, or of the rest of a refused one."""
    IDLE = 2
    ANSWERING = 3


@dataclass(eq=False)
class Connection:
    address: str
    task: asyncio.Task[None] | None = None
    phase: Phase = Phase.OPENING
    since: float = field(default_factory=time.monotonic)
    held: int = 0
    given_up: str = ""
    """Why the connection was given up; empty as long as it was not."""

    def enter(self, phase: Phase) -> None:
        self.phase = phase
        self.since = time.monotonic()

    def give_up(self, reason: str) -> None:
        if not self.given_up and self.task is not None:
            self.given_up = reason
            self.task.cancel()


class Connections:
    """All open connections, within a number and a number of bytes."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._open: dict[Connection, None] = {}
        self.held = 0

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._open))

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._open

    def add(self, connection: Connection) -> bool:
        """False if all others are at work on complete requests, so that there is no room for one more."""
        if len(self._open) >= self._most:
            waiting = [each for each in self._open if each.phase < Phase.ANSWERING and not each.given_up]
            if not waiting:
                return False
            victim = _chosen(waiting, lambda _: 1, lambda each: (each.phase, each.since))
            victim.give_up("too many connections")
            self.remove(victim)
        self._open[connection] = None
        return True

    def remove(self, connection: Connection) -> None:
        self._open.pop(connection, None)
        self.release(connection)

    def hold(self, connection: Connection, count: int) -> bool:
        """Count bytes of a body; False if there is no room for them."""
        while self.held + count > self._most_bytes:
            if not self.give_up_largest(connection.held + count):
                return False
        connection.held += count
        self.held += count
        return True

    def give_up_largest(self, size: int) -> bool:
        """Give up a request whose body is larger than this; False if there is none."""
        larger = [each for each in self._open if each.held > size and not each.given_up]
        if not larger:
            return False
        victim = _chosen(larger, lambda each: each.held, lambda each: (-each.held, each.since))
        victim.give_up("too many large requests")
        self.release(victim)
        return True

    def release(self, connection: Connection) -> None:
        """The body of the connection is gone."""
        self.held -= connection.held
        connection.held = 0


def _chosen(
    among: Iterable[Connection], weight: Callable[[Connection], int], order: Callable[[Connection], tuple[float, float]]
) -> Connection:
    """The first by `order` of the address with the most weight."""
    weights: Counter[str] = Counter()
    for each in among:
        weights[each.address] += weight(each)
    heaviest = max(weights, key=lambda address: weights[address])
    return min((each for each in among if each.address == heaviest), key=order)
