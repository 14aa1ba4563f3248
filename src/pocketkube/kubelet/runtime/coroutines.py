"""A container as a coroutine of this process: for images that do little and of which there are many.

Only plug-ins add such images, each with its whole command line and the namespaces where it runs so. The code is theirs,
and nothing that a pod names is executed.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from apportion.cluster.client import Client
from pocketkube.clock import Clock
from pocketkube.kubelet.runtime.runs import SIGNALLED, unused_pid

log = logging.getLogger(__name__)

_FAILED = 1


@dataclass(frozen=True, kw_only=True)
class OwnPlace:
    """What a coroutine knows of its container. `client` acts as the service account of the pod.

    On a light node there are no devices, no variables and no log.
    """

    pod: Mapping[str, Any]
    node: Mapping[str, Any]
    env: Mapping[str, str]
    client: Client
    clock: Clock
    write: Callable[[str], None]
    light: bool = False


Main = Callable[[OwnPlace], Coroutine[Any, Any, int]]


@dataclass(frozen=True, kw_only=True)
class CoroutineImage:
    """An image whose containers run as coroutines, if they have exactly this command line."""

    image: str
    namespaces: frozenset[str]
    command: tuple[str, ...]
    main: Main  # answers with the exit code; cancelled at SIGTERM, which ends it with 0


class CoroutineRun:
    """Ends when the coroutine does, or when it is stopped."""

    def __init__(self, container_id: str, main: Main, place: OwnPlace) -> None:
        self.pid = unused_pid()
        self.reason = ""
        self._signalled: int | None = None
        self._working = asyncio.create_task(main(place), name=f"container {container_id[:12]}")
        self._ended = asyncio.create_task(self._follow())

    async def begun(self) -> None:
        """What it does at once is not waited for: it may need an answer of the API server."""

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    async def execute(self, argv: list[str]) -> tuple[int, str]:
        """There is nothing to run a command in: taken as successful."""
        del argv
        return 0, ""

    def terminate(self) -> None:
        self._end(0)

    def kill(self) -> None:
        self._end(SIGNALLED + signal.SIGKILL)

    def _end(self, code: int) -> None:
        if self._signalled is None:
            self._signalled = code
            self._working.cancel()

    async def _follow(self) -> int:
        try:
            return await self._working
        except asyncio.CancelledError:
            if self._signalled is None:
                self._working.cancel()
                raise
            return self._signalled
        except Exception:
            log.exception("a container that runs as a coroutine failed")
            return _FAILED
