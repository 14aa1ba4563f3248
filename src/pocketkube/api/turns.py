"""Work that takes long gives up its turn: on large objects it runs in a thread, so that other clients are answered.

There is one thread: large requests are worked on one after the other, which bounds their memory. Python switches
between threads every few milliseconds. Only functions of their arguments may run there; the store, the registry and
everything else that the event loop changes stay on the loop.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from pocketkube.api import limits, status

P = ParamSpec("P")
T = TypeVar("T")


class Turns:
    """The thread for large work, and how much waits for it."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._large = 0

    async def run(self, size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result. `size`: bytes of what it works on."""
        if size < limits.LARGE:
            return function(*args, **kwargs)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-requests")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: function(*args, **kwargs))

    def begin(self, size: int) -> Callable[[], None]:
        """Count a request until the returned function is called; refuse it if too many large ones wait."""
        if size < limits.LARGE:
            return lambda: None
        if self._large >= limits.MAX_LARGE_WAITING:
            raise status.too_many_requests("Too many requests, please try again later.", retry_after=1)
        self._large += 1
        return self._end

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None

    def _end(self) -> None:
        self._large -= 1
        if not self._large and self._thread is not None:
            self._thread.submit(_give_memory_back)


def _give_memory_back() -> None:
    """What large requests needed goes back to the system: the C library would keep it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
