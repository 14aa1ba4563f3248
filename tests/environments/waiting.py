"""Waiting for a condition, with a bound and a sentence for the case that it never comes."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class NeverHappenedError(AssertionError):
    """A condition did not come true in its time."""


def until(check: Callable[[], T], what: str, *, within: float = 30.0, pause: float = 0.05) -> T:
    """The first truthy answer of `check`; an exception counts as "not yet" and is shown when time is up."""
    deadline = time.monotonic() + within
    last: object = None
    while True:
        try:
            answer = check()
        except (OSError, AssertionError, LookupError, ValueError) as error:
            last = error
        else:
            if answer:
                return answer
            last = answer
        if time.monotonic() > deadline:
            raise NeverHappenedError(f"not within {within:g} s: {what} (last answer: {last!r})")
        time.sleep(pause)


async def eventually(condition: Callable[[], Any], *, seconds: float = 15) -> Any:
    """The first true answer of `condition` (sync or async); fails after the time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        found = condition()
        if inspect.iscoroutine(found):
            found = await found
        if found:
            return found
        assert loop.time() < end, "it did not come true in time"
        await asyncio.sleep(0.02)
