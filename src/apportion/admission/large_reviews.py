"""Work on large reviews takes turns, with a pause after each that is as long as the work.

Decoding a review of 8 MiB takes about 0.2 s, and one process does one thing at a time. So ordinary reviews never wait
for more than one large one, however many there are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

LARGE_BYTES = 128 * 1024


class LargeReviews:
    """One for all rules of a process."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(1)

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """Do the work for a review of so many bytes inside; nothing should wait there."""
        if size <= LARGE_BYTES:
            yield
            return
        async with self._free:
            began = time.perf_counter()
            try:
                yield
            finally:
                await asyncio.sleep(time.perf_counter() - began)
