"""One run of a container, whoever carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pocketkube.kubelet.container_files import ContainerFiles
from pocketkube.kubelet.containers.logs import ContainerLog

SIGNALLED = 128  # added to a signal's number in an exit code


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


class Run(Protocol):
    """A container that was started. `pid` stands in its cgroup; simulated ones have one that no process can have.

    `reason` says why it ended, if that is a special one.
    """

    pid: int
    reason: str

    async def wait(self) -> int:
        """The exit code, once it has ended; 128 + n if signal n ended it."""

    async def execute(self, argv: list[str]) -> tuple[int, str]:
        """Exit code and output of a command inside the container, for probes and hooks."""

    def terminate(self) -> None:
        """Ask it to end (SIGTERM). It need not obey."""

    def kill(self) -> None:
        """End it (SIGKILL)."""


class StartError(Exception):
    """A container that could not be started."""
