"""Runs a plane as a process: event loop, signals, log format, exit code.

Exit codes: 0 after SIGTERM or SIGINT or when the work is done, 1 after an error that is ours or
unforeseen, 2 for settings that cannot be used. Expected errors end in one line, not in a traceback.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable

from apportion.cluster import log_levels
from apportion.cluster.errors import ClusterError, ConfigError
from apportion.cluster.log_text import OneLineFormatter

log = logging.getLogger(__name__)


def run(main: Callable[[], Awaitable[None]], *, name: str, level: str | None = None) -> None:
    """Run `main()` until it ends or a signal comes, then leave the process with the right code."""
    set_up_logging(name, level)
    sys.exit(_guarded(main))


def set_up_logging(name: str, level: str | None = None) -> None:
    """Lines `LEVEL component message` on stderr; level from the argument, else APPORTION_LOG_LEVEL."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(name))
    logging.getLogger().handlers[:] = [handler]
    wanted = level or os.environ.get("APPORTION_LOG_LEVEL") or "Normal"
    chosen = log_levels.parse(wanted)
    log_levels.apply(logging.INFO if chosen is None else chosen)
    if chosen is None:
        log.warning("unknown log level %r: using Normal; known levels: %s", wanted, ", ".join(log_levels.NAMES))


class _Formatter(OneLineFormatter):
    def __init__(self, name: str) -> None:
        super().__init__("%(asctime)s %(levelname)s %(component)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        self._name = name

    def format(self, record: logging.LogRecord) -> str:
        record.component = self._name
        return super().format(record)


def _guarded(main: Callable[[], Awaitable[None]]) -> int:
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_until_signal(main))
    except ConfigError as error:
        log.critical("%s", error)
        return 2
    except ClusterError as error:
        log.critical("%s", error)
        return 1
    except BaseExceptionGroup as group:
        expected = group.subgroup(lambda error: isinstance(error, ClusterError | OSError))
        if expected is not None and len(_leaves(expected)) == len(_leaves(group)):
            log.critical("%s", "; ".join(str(leaf) for leaf in _leaves(group)))
        else:
            log.critical("terminated by an unexpected error", exc_info=group)
        return 1
    except OSError as error:
        log.critical("%s", error)
        return 1
    except Exception:
        log.critical("terminated by an unexpected error", exc_info=True)
        return 1


async def _until_signal(main: Callable[[], Awaitable[None]]) -> int:
    loop = asyncio.get_running_loop()
    work = asyncio.ensure_future(main())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        log.info("stopped")
    return 0


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # Windows
        return None
    return uvloop.new_event_loop
