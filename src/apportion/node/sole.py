"""One agent per node: two would each believe their own book."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

FILE_NAME = "agent.lock"
POLL_SECONDS = 0.5

log = logging.getLogger(__name__)


@asynccontextmanager
async def sole_agent(state_dir: Path) -> AsyncIterator[None]:
    """Wait until no other agent works on this node. The kernel lets go of the lock when a process dies."""
    descriptor = _open(state_dir)
    try:
        waiting = False
        while not _try(descriptor):
            if not waiting:
                log.warning("another agent works on this node (%s): waiting until it ends", state_dir / FILE_NAME)
                waiting = True
            await asyncio.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _open(state_dir: Path) -> int:
    state_dir.mkdir(parents=True, exist_ok=True)
    return os.open(state_dir / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
