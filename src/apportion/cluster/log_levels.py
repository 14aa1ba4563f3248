"""The names of log levels: those of a DASOperator, and those that people know from elsewhere.

Normal has a line for every decision. Debug adds how it came about: lists, cycles, reviews. Trace adds every request to
the API server and every change of a watched object, by name only: no bodies, no headers. TraceAll adds what libraries
log.
"""

from __future__ import annotations

import logging

TRACE = 5
TRACE_ALL = 1
NAMES = ("Normal", "Debug", "Trace", "TraceAll", "Info", "Warning", "Error")
_LEVELS = {
    "normal": logging.INFO,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": TRACE,
    "traceall": TRACE_ALL,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
_NOISY = ("aiohttp.access", "asyncio")

logging.addLevelName(TRACE, "TRACE")


def parse(text: str) -> int | None:
    """None if there is no such level."""
    return _LEVELS.get(text.strip().lower())


def apply(level: int) -> None:
    """Make it the level of this process."""
    logging.getLogger().setLevel(level)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING if level > TRACE_ALL else logging.NOTSET)
