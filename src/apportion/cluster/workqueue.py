"""Keys waiting to be reconciled: each one once, never twice at the same time, later after a failure."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from apportion.cluster.errors import ClusterError

K = TypeVar("K", bound=Hashable)
Reconcile = Callable[[K], Awaitable[float | None]]

log = logging.getLogger(__name__)


class WorkQueue(Generic[K]):
    """A queue of keys.

    A key that is added while it waits is not added again; one that is added while its reconciliation
    runs is run once more afterwards. `reconcile(key)` may return seconds after which to look again; if
    it raises, the key comes back after `first_backoff`, doubled at each further failure.
    """

    def __init__(self, name: str, *, first_backoff: float = 0.05, longest_backoff: float = 30.0) -> None:
        self.name = name
        self._first_backoff = first_backoff
        self._longest_backoff = longest_backoff
        self._waiting: deque[K] = deque()
        self._dirty: set[K] = set()
        self._running: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._wakeups: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: K, *, first: bool = False) -> None:
        """Reconcile `key` as soon as a worker is free; `first`: before those that wait already."""
        if key in self._dirty:
            return
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._dirty.add(key)
        if key not in self._running:
            (self._waiting.appendleft if first else self._waiting.append)(key)
            self._wake()

    def add_after(self, key: K, seconds: float) -> None:
        """Reconcile `key` in a while; of several times the earliest counts."""
        if seconds <= 0:
            self.add(key)
            return
        if key in self._dirty:
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self._due, key)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    @property
    def idle(self) -> bool:
        """Nothing waits, runs, or is due later."""
        return not (self._waiting or self._running or self._timers)

    async def run(self, reconcile: Reconcile[K], workers: int = 1) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(workers):
                group.create_task(self._work(reconcile), name=f"{self.name}-{number}")

    def close(self) -> None:
        """Forget the timers; a queue whose loop goes on would keep them."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _wake(self) -> None:
        while self._wakeups:
            future = self._wakeups.pop()
            if not future.done():
                future.set_result(None)
                return

    async def _next(self) -> K:
        while not self._waiting:
            future = asyncio.get_running_loop().create_future()
            self._wakeups.add(future)
            try:
                await future
            finally:
                self._wakeups.discard(future)
        return self._waiting.popleft()

    async def _work(self, reconcile: Reconcile[K]) -> None:
        while True:
            key = await self._next()
            self._dirty.discard(key)
            self._running.add(key)
            again: float | None = None
            log.debug("%s: %s", self.name, key)
            try:
                again = await reconcile(key)
                self._failures.pop(key, None)
            except ClusterError as error:
                again = self._failed(key)
                log.warning("%s: %s: %s; retrying in %.1f s", self.name, key, error, again)
            except Exception:
                again = self._failed(key)
                log.exception("%s: %s failed; retrying in %.1f s", self.name, key, again)
            finally:
                self._running.discard(key)
                if key in self._dirty:
                    self._waiting.append(key)
                    self._wake()
            if again is not None:
                self.add_after(key, again)
            # A reconcile against a server in this process may never wait: others must have their turn all the same.
            await asyncio.sleep(0)

    def _failed(self, key: K) -> float:
        count = self._failures[key] = self._failures.get(key, 0) + 1
        return min(self._first_backoff * 2.0 ** (count - 1), self._longest_backoff)
