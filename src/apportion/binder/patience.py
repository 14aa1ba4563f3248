"""How long something has been waited for, and how soon something that failed may be tried again."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from apportion.cluster import clock

FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 300.0


class Patience:
    """A deadline for each key, counted from when it was first asked for by this process."""

    def __init__(self, seconds: Callable[[], float], now: clock.Clock = clock.elapsed) -> None:
        self._seconds = seconds
        self._now = now
        self._since: dict[Hashable, float] = {}

    def left(self, key: Hashable) -> float:
        """Seconds until the deadline; 0 or less once it is over."""
        now = self._now()
        return self._since.setdefault(key, now) + self._seconds() - now

    def forget(self, *keys: Hashable) -> None:
        for key in keys:
            self._since.pop(key, None)


class Backoff:
    """Attempts for each key: the first at once, then at intervals that double."""

    def __init__(self, now: clock.Clock = clock.elapsed) -> None:
        self._now = now
        self._attempts: dict[str, tuple[int, float]] = {}

    def wait(self, key: str) -> float:
        """Seconds until the next attempt is due; 0 or less: now."""
        return self._attempts.get(key, (0, 0.0))[1] - self._now()

    def attempted(self, key: str) -> None:
        count = self._attempts.get(key, (0, 0.0))[0]
        pause = min(FIRST_BACKOFF_SECONDS * 2.0 ** min(count, 16), LONGEST_BACKOFF_SECONDS)
        self._attempts[key] = (count + 1, self._now() + pause)

    def succeeded(self, key: str) -> None:
        self._attempts.pop(key, None)
