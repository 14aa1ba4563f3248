"""The two clocks that planes use: one that measures, one that writes dates."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], float]


def elapsed() -> float:
    """Seconds that only grow, also while the machine sleeps (`time.monotonic` stands still then)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def timestamp(moment: datetime | None = None) -> str:
    """A date as Kubernetes writes it, in whole seconds."""
    return (moment or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(moment: datetime | None = None) -> str:
    """A date with microseconds, as leases and events have it."""
    return (moment or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def timestamp_of(seconds: int) -> str:
    """The same for a number of seconds since 1970."""
    return timestamp(datetime.fromtimestamp(seconds, UTC))


def parse_timestamp(text: str) -> datetime:
    return datetime.fromisoformat(text)


def seconds(text: str) -> int | None:
    """The date in seconds since 1970; None if it is no date."""
    try:
        return int(parse_timestamp(text).timestamp())
    except (ValueError, OverflowError):
        return None
