"""A real API server for a benchmark, and a watcher of bindings in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.environments import binaries
from tests.environments.control_plane import ADMIN, ControlPlane
from tests.environments.sandbox import Daemon


def require() -> None:
    """End with a sentence where there is none."""
    obstacle = binaries.obstacles(binaries.CONTROL_PLANE)
    if obstacle is not None:
        raise SystemExit(f"no real API server here: {obstacle}")


@contextmanager
def api_server() -> Iterator[ControlPlane]:
    """Without controllers: nodes and pods are only objects."""
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(
            Path(folder) / "plane",
            controllers=False,
            without_admission=("ServiceAccount", "TaintNodesByCondition", "Priority"),
        )
        try:
            yield plane
        finally:
            plane.close()


def watch(plane: ControlPlane, pods: int) -> subprocess.Popen[bytes]:
    """Watching already when this returns; it ends when so many pods are bound."""
    config = plane.kubeconfig_of(ADMIN, "watcher")
    command = [sys.executable, "-m", "benchmarks.bindings", str(config), str(pods)]
    watcher = subprocess.Popen([*plane.enter, *command], cwd=binaries.ROOT, stdout=subprocess.PIPE)
    assert watcher.stdout is not None
    if watcher.stdout.readline() != b"watching\n":
        raise RuntimeError("the watcher did not start")
    return watcher


def seen(watcher: subprocess.Popen[bytes], daemon: Daemon | None) -> dict[str, float]:
    """When the first and the last pod were bound, once the last one is."""
    assert watcher.stdout is not None
    line = watcher.stdout.readline()
    if daemon is not None:
        daemon.expect_alive()
    if not line:
        raise RuntimeError("the watcher ended before it had seen every binding")
    found: dict[str, float] = json.loads(line)
    return found
