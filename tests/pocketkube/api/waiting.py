"""Waiting for a condition of the same process, with a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE_SECONDS = 10.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110  the condition is somebody else's state, not an event
            await asyncio.sleep(0.01)
