"""What simulated programs may use: steps, output, memory, files, tasks.

Programs of many pods are interpreted in one process. A program that does a lot is slowed down to a rate after a
generous burst, and gives up its turn after a fixed number of steps, whatever it does. One that holds too much memory
is killed, as a container is at its memory limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

KIB, MIB = 1024, 1024 * 1024
TURN_STEPS = 200
CHARACTERS_PER_STEP = 512  # where text is only moved; slower work counts them several times
PER_LINE = 32  # bytes; what a line of output costs whoever stores it, besides its text
PER_MESSAGE = 1024  # bytes; the same for a message to the kubelet
PER_FILE = 4096  # bytes


@dataclass(frozen=True)
class Rate:
    """So much at once, and so much per second after that."""

    burst: float
    per_second: float


@dataclass(frozen=True)
class Limits:
    """Of one program. Sizes in bytes."""

    steps: Rate = field(default_factory=lambda: Rate(200_000, 5_000))  # a step takes about 10 microseconds
    output: Rate = field(default_factory=lambda: Rate(4 * MIB, 256 * KIB))
    memory: int = 16 * MIB
    written: int = 64 * MIB  # to files
    tasks: int = 64  # commands at the same time: in the background and in pipelines
    depth: int = 60  # of commands in commands


@dataclass(frozen=True)
class SharedLimits:
    """Of all programs of a process together."""

    output: Rate = field(default_factory=lambda: Rate(16 * MIB, MIB))
    memory: int = 256 * MIB


class OutOfMemoryError(Exception):
    """A program that holds more than it may; it is killed."""


class Bucket:
    """A rate as debt: whoever takes more than there is waits until it is paid."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._left = rate.burst
        self._at = time.monotonic()

    def take(self, amount: float) -> float:
        """The seconds to wait."""
        now = time.monotonic()
        self._left = min(self._rate.burst, self._left + (now - self._at) * self._rate.per_second) - amount
        self._at = now
        return max(0.0, -self._left / self._rate.per_second)


class Shared:
    """What the programs of one process use together."""

    def __init__(self, limits: SharedLimits | None = None) -> None:
        self._limits = limits or SharedLimits()
        self.output = Bucket(self._limits.output)
        self.held = 0
        self._programs: set[Allowance] = set()

    def add(self, allowance: Allowance) -> None:
        self._programs.add(allowance)

    def remove(self, allowance: Allowance) -> None:
        self._programs.discard(allowance)
        self.held -= allowance.held

    def check(self) -> None:
        """Together too much: the largest program is killed."""
        if self.held > self._limits.memory and self._programs:
            max(self._programs, key=lambda each: each.held).kill()


class Allowance:
    """What one program has used. `killed` is called when it uses too much memory."""

    def __init__(
        self, limits: Limits | None = None, shared: Shared | None = None, killed: Callable[[], None] = lambda: None
    ) -> None:
        self.limits = limits or Limits()
        self.held = 0
        self.tasks = 0
        self.is_killed = False
        self._shared = shared or Shared()
        self._killed = killed
        self._steps = Bucket(self.limits.steps)
        self._output = Bucket(self.limits.output)
        self._written = 0
        self._turn = 0.0
        self._shared.add(self)

    def close(self) -> None:
        self._shared.remove(self)
        self._shared = Shared()  # what is released after the end was never in the sum

    def kill(self) -> None:
        self.is_killed = True
        self._killed()

    async def step(self, characters: int = 0) -> None:
        """One step, and those for working on so much text. Programs with many tasks have shorter turns."""
        self._turn += 1 + characters / CHARACTERS_PER_STEP
        if self._turn < TURN_STEPS / (1 + self.tasks):
            return
        spent, self._turn = self._turn, 0.0
        await asyncio.sleep(self._steps.take(spent))
        if self.is_killed:
            raise OutOfMemoryError

    async def output(self, size: float) -> None:
        """Wait until so much may be handed to the kubelet."""
        seconds = max(self._output.take(size), self._shared.output.take(size))
        if seconds:
            await asyncio.sleep(seconds)

    def write(self, size: int) -> None:
        """So much goes to files."""
        self._written += size
        if self._written > self.limits.written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def hold(self, size: int) -> None:
        """So many bytes more (or less) are in use."""
        self.held += size
        self._shared.held += size
        if self.held > self.limits.memory:
            self.kill()
        elif size > 0:
            self._shared.check()
        if self.is_killed and size > 0:
            raise OutOfMemoryError

    @contextlib.contextmanager
    def holding(self) -> Iterator[Callable[[int], None]]:
        """Memory for as long as the block lasts: call what is given with sizes."""
        held = 0

        def more(size: int) -> None:
            nonlocal held
            held += size
            self.hold(size)

        try:
            yield more
        finally:
            self.hold(-held)
