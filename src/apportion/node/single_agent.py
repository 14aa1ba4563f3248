"""One agent per node: two would each trust their own records of slices."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

FILE_NAME = "agent.lock"
POLL_SECONDS = 0.5

log = logging.getLogger(__name__)


@asynccontextmanager
async def single_agent(state_dir: Path, waits: Callable[[str], None]) -> AsyncIterator[None]:
    """Wait until no other agent works on this node; `waits` is told why, and an empty text at the end.

    The kernel releases the lock when the process ends.
    """
    descriptor, told = -1, ""
    while descriptor < 0:
        descriptor, why = _try(state_dir)
        if why != told:
            told = why
            waits(why)
            if why:
                log.warning("%s", why)
        if descriptor < 0:
            await asyncio.sleep(POLL_SECONDS)
    try:
        yield
    finally:
        os.close(descriptor)


def _try(state_dir: Path) -> tuple[int, str]:
    """The locked file, or -1 and why there is none."""
    path = state_dir / FILE_NAME
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return -1, f"{path} cannot be opened ({error.strerror}): the agent waits until that is fixed"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return -1, f"another agent runs on this node ({path}): waiting until it ends"
    return descriptor, ""
