"""Work that takes long gives up its turn: on large objects it runs in a thread, so that other clients are answered.

There is one thread, and few large requests are begun at once: an object in memory is many times as large as its text.
Python switches between threads every few milliseconds. Only functions of their arguments may run there; the store, the
registry and everything else that the event loop changes stay on the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

from pocketkube.api import limits, status

P = ParamSpec("P")
T = TypeVar("T")

TRIM_SECONDS = 5.0
TRIMS = 6  # after the last large work: its objects may be deleted a while later


class _Slot:
    """The place of one of the few large requests that are answered at once."""

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free = free
        self._held = False
        self.waits = 0  # for other servers

    async def take(self) -> None:
        await self._free.acquire()
        self._held = True

    def give(self) -> None:
        if self._held:
            self._held = False
            self._free.release()


_slot: ContextVar[_Slot | None] = ContextVar("slot", default=None)


@contextlib.asynccontextmanager
async def waiting_for_another_server() -> AsyncIterator[None]:
    """A large request leaves its place to others meanwhile: that server may send large requests to this one."""
    slot = _slot.get()
    if slot is None:
        yield
        return
    slot.waits += 1
    slot.give()
    try:
        yield
    finally:
        slot.waits -= 1
        if not slot.waits:
            await slot.take()


class Turns:
    """The thread for large work, and the large requests that are being answered or wait for that."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._large = 0
        self._begun = asyncio.Semaphore(limits.MAX_LARGE)
        self._timer: asyncio.TimerHandle | None = None
        self._trims = 0

    async def run(self, size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result. `size`: bytes of what it works on."""
        if size < limits.LARGE:
            return function(*args, **kwargs)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-requests")
        loop = asyncio.get_running_loop()
        self._trims = TRIMS
        if self._timer is None:
            self._timer = loop.call_later(TRIM_SECONDS, self._trim)
        return await loop.run_in_executor(self._thread, lambda: function(*args, **kwargs))

    @contextlib.asynccontextmanager
    async def request(self, size: int) -> AsyncIterator[None]:
        """While a request with a body of so many bytes is answered. Refused if too many large ones wait."""
        if size < limits.LARGE:
            yield
            return
        if self._large >= limits.MAX_LARGE_WAITING:
            raise status.too_many_requests("Too many requests, please try again later.", retry_after=1)
        self._large += 1
        slot = _Slot(self._begun)
        before = _slot.set(slot)
        try:
            await slot.take()
            yield
        finally:
            slot.give()
            _slot.reset(before)
            self._large -= 1

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None

    def _trim(self) -> None:
        assert self._thread is not None
        self._thread.submit(_give_memory_back)
        self._trims -= 1
        self._timer = asyncio.get_running_loop().call_later(TRIM_SECONDS, self._trim) if self._trims else None


def _give_memory_back() -> None:
    """What large requests needed goes back to the system: the C library would keep it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
