"""The time of an embedded cluster, taken from one object.

Nothing in this package asks the operating system for the time or sleeps on its own: kubelets and controllers
are given a clock, so a test or a replay can run them in virtual time.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Seconds since the epoch, and waiting. Between `pause` and `resume` another process works on something in no
    time of the cluster, if the time is a virtual one."""

    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class SystemClock:
    """The time of the machine."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))

    def pause(self) -> None:
        """This time does not stop."""

    def resume(self) -> None:
        """This time does not stop."""


class LoopClock:
    """The time of the running event loop, counted from a fixed moment: virtual wherever the loop's time is."""

    def __init__(self, start: float = 1_767_225_600.0) -> None:
        self._start = start

    def now(self) -> float:
        return self._start + asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))

    def pause(self) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            loop.pauses += 1

    def resume(self) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            loop.pauses -= 1


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that does not wait: with nothing ready, its time jumps to the next timer, unless it is paused.

    For clusters that wait for nothing outside their process but what pauses the clock; other sockets would see their
    timeouts pass in no time.
    """

    def __init__(self) -> None:
        self.pauses = 0
        self._jumped = 0.0
        super().__init__(_JumpingSelector(self._jump, lambda: self.pauses > 0))

    def time(self) -> float:
        return self._jumped

    def _jump(self, seconds: float) -> None:
        self._jumped += seconds


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, jump: Callable[[float], None], is_paused: Callable[[], bool]) -> None:
        super().__init__()
        self._jump = jump
        self._is_paused = is_paused

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None or self._is_paused():  # nothing will ever happen by itself
            return super().select(None)
        self._jump(max(timeout, 1e-9))
        return []


def stamp(seconds: float) -> str:
    """A moment as `metav1.Time` writes it: whole seconds, UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_stamp(seconds: float) -> str:
    """A moment as `metav1.MicroTime` writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def nano_stamp(seconds: float) -> str:
    """A moment as the lines of a container log write it."""
    whole = int(seconds)
    fraction = int((seconds - whole) * 1_000_000_000)
    return datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{fraction:09d}Z"


def seconds_of(text: str) -> float:
    """The inverse of the three above."""
    moment = text.rstrip("Z")
    whole, _, fraction = moment.partition(".")
    base = datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC).timestamp()
    return base + (float(f"0.{fraction}") if fraction else 0.0)
