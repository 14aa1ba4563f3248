"""The scheduler with a stopwatch: when it had synced, and what order and fair shares cost.

    python -m benchmarks.timed_scheduler COUNT [options of apportion scheduler]

When COUNT pods have been bound it prints one line of JSON. CPU seconds are those of its only thread. Order and fair
shares are counted from the start (what pods ask of their queues is noted as they are read), everything from the sync.
"""

from __future__ import annotations

import functools
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from apportion.cli.main import main
from apportion.cluster.client import Client
from apportion.core import group_turns
from apportion.core.queues.demand import Demand
from apportion.core.queues.entitlements import Entitlements
from apportion.core.queues.turns import Turns

MARK = "timed: "
_ORDER: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (Demand, ("add", "remove")),
    (Entitlements, ("update", "turns")),
    (Turns, ("add", "next", "changed")),
    (group_turns, ("next_turn",)),
)


class Stopwatch:
    """`timed` work within other timed work counts once."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._bound = 0
        self._order = 0.0
        self._inside = False
        self._synced = self._cpu = self._asked = 0.0

    def timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def run(*arguments: Any, **named: Any) -> Any:
            if self._inside:
                return work(*arguments, **named)
            self._inside = True
            began = time.thread_time()
            try:
                return work(*arguments, **named)
            finally:
                self._order += time.thread_time() - began
                self._inside = False

        return run

    def noted(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith("synced:"):
            self._synced, self._cpu = time.monotonic(), time.thread_time()
        return True

    def counted(self, bind: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        @functools.wraps(bind)
        async def run(*arguments: Any, **named: Any) -> None:
            self._asked = self._asked or time.monotonic()
            await bind(*arguments, **named)
            self._bound += 1
            if self._bound == self._count:
                print(MARK + json.dumps(self._found()), flush=True)

        return run

    def _found(self) -> dict[str, float]:
        cpu = time.thread_time() - self._cpu
        return {"synced": self._synced, "asked": self._asked, "order": self._order, "cpu": cpu}


def install(watch: Stopwatch) -> None:
    for place, names in _ORDER:
        for name in names:
            setattr(place, name, watch.timed(getattr(place, name)))
    setattr(Client, "bind", watch.counted(Client.bind))  # noqa: B010  mypy forbids to assign a method
    logging.getLogger("apportion.scheduler.main").addFilter(watch.noted)


if __name__ == "__main__":
    install(Stopwatch(int(sys.argv[1])))
    sys.argv[:2] = ["apportion", "scheduler"]
    main()
