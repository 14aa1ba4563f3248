"""One run of a container, whoever carries it out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pocketkube.kubelet.container_files import ContainerFiles
from pocketkube.kubelet.containers.logs import ContainerLog

SIGNALLED = 128  # added to a signal's number in an exit code
_ABOVE_ALL_PIDS = 4_194_305  # the kernel's largest process id is 4194304
_pids = itertools.count(_ABOVE_ALL_PIDS)


@dataclass(frozen=True)
class Launch:
    """All that a run needs, resolved: nothing in here refers to the API any more."""

    container_id: str
    argv: list[str]
    env: Mapping[str, str]
    hostname: str
    files: ContainerFiles
    log: ContainerLog
    annotations: Mapping[str, str] = field(default_factory=dict)


class RuntimeFiles(Protocol):
    """What a container runtime adds to a container by its variables: texts by path."""

    def __call__(
        self, pod: Mapping[str, Any], node: Mapping[str, Any], env: Mapping[str, str], /
    ) -> Mapping[str, str]: ...


class Run(Protocol):
    """A container that was started. `pid` stands in its cgroup; simulated ones have one that no process can have.

    `reason` says why it ended, if that is a special one.
    """

    pid: int
    reason: str

    async def begun(self) -> None:
        """Until it has done what it does at once, at the most for a few seconds: its output is in the log then."""

    async def wait(self) -> int:
        """The exit code, once it has ended; 128 + n if signal n ended it."""

    async def execute(self, argv: list[str]) -> tuple[int, str]:
        """Exit code and output of a command inside the container, for probes and hooks."""

    def terminate(self) -> None:
        """Ask it to end (SIGTERM). It need not obey."""

    def kill(self) -> None:
        """End it (SIGKILL)."""


def unused_pid() -> int:
    """For a run without a process of its own."""
    return next(_pids)


class StartError(Exception):
    """A container that could not be started."""
