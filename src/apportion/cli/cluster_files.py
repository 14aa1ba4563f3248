"""State files of the embedded clusters of this machine, one per cluster.

`up` writes the file and `down` reads it; the next `up` deletes what a killed cluster left behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

import msgspec

from apportion.cli import contexts

STARTING, READY, FAILED = "starting", "ready", "failed"


class ClusterState(msgspec.Struct):
    """One cluster. `started` distinguishes its process from a later one with the same pid."""

    name: str
    pid: int
    started: str
    root: str = ""
    kubeconfig: str = ""
    server: str = ""
    phase: str = STARTING
    problem: str = ""
    selected_in: str = ""  # the default kubeconfig of kubectl, if it selects this cluster
    selected_before: str = ""

    @property
    def alive(self) -> bool:
        return started_at(self.pid) == self.started != ""


def folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return Path(base) / "apportion"


def state_path(name: str) -> Path:
    return folder() / f"{name}.json"


def log_path(name: str) -> Path:
    return folder() / f"{name}.log"


def kubeconfig_path(name: str) -> Path:
    return folder() / f"{name}.kubeconfig"


def read(name: str) -> ClusterState | None:
    try:
        return msgspec.json.decode(state_path(name).read_bytes(), type=ClusterState)
    except (OSError, msgspec.DecodeError):
        return None


def write(state: ClusterState) -> None:
    path = state_path(state.name)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(msgspec.json.encode(state))
    beside.replace(path)


def mine(name: str) -> ClusterState:
    return ClusterState(name=name, pid=os.getpid(), started=started_at(os.getpid()))


def started_at(pid: int) -> str:
    """Start time of a process in kernel ticks; empty if it does not exist, or on systems without /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def clean_up(state: ClusterState) -> None:
    """Delete the files of a cluster that has ended."""
    root = Path(state.root) if state.root else None
    if root is not None and root.name.startswith("ap-"):  # only directories that we created
        shutil.rmtree(root, ignore_errors=True)
    if state.kubeconfig:
        Path(state.kubeconfig).unlink(missing_ok=True)
    if state.selected_in:
        with contextlib.suppress(contexts.ContextError):
            contexts.remove(Path(state.selected_in), state.name, state.selected_before)
    state_path(state.name).unlink(missing_ok=True)


def stop(state: ClusterState, *, seconds: float) -> bool:
    """Stop the process of a cluster with SIGTERM, then SIGKILL. Returns whether SIGTERM was enough."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(state.pid, signal.SIGTERM)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not state.alive:
            return True
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.kill(state.pid, signal.SIGKILL)
    while state.alive and time.monotonic() < end + seconds:
        time.sleep(0.05)
    return False
