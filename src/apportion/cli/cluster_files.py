"""State files of the embedded clusters of this machine, one per cluster.

`up` writes the file and `down` reads it; the next `up` deletes what a killed cluster left behind. A file of another
user is never used: it names a process to stop and files to delete.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from apportion.cli import contexts

STARTING, READY, FAILED = "starting", "ready", "failed"
_NAME = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")


class StateError(Exception):
    """The state of a cluster cannot be read or written; the message names the file and a solution."""


class NameTaken(Exception):
    """Another process starts or runs a cluster of this name."""


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


def valid_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111  never raises
    return Path(base).absolute() / "apportion"


def state_path(name: str) -> Path:
    return folder() / f"{name}.json"


def log_path(name: str) -> Path:
    return folder() / f"{name}.log"


def kubeconfig_path(name: str) -> Path:
    return folder() / f"{name}.kubeconfig"


def read(name: str) -> ClusterState | None:
    """None if there is no such cluster, or if its file is damaged."""
    path = state_path(name)
    try:
        with path.open("rb") as file:
            owner = os.fstat(file.fileno()).st_uid
            content = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StateError(f"{path}: cannot be read ({error.strerror})") from None
    if owner != os.geteuid():
        raise StateError(f"{path} belongs to another user (uid {owner}): run the command as that user")
    try:
        return msgspec.json.decode(content, type=ClusterState)
    except msgspec.DecodeError:
        return None


def known() -> list[ClusterState]:
    """All clusters of this user, by name; some may have been killed."""
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(folder().glob("*.json")):
            with contextlib.suppress(StateError):
                state = read(path.stem)
                if state is not None:
                    found.append(state)
    return found


def running() -> list[ClusterState]:
    return [state for state in known() if state.alive]


def prepare_folder() -> None:
    """Raises StateError if the folder cannot be used."""
    path = folder()
    fix = "set XDG_STATE_HOME to a directory that you can write to"
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        owner = path.stat().st_uid
    except OSError as error:
        raise StateError(f"{path}: cannot be created ({error.strerror}): {fix}") from None
    if owner != os.geteuid():
        raise StateError(f"{path} belongs to another user (uid {owner}): {fix}")
    if not os.access(path, os.W_OK | os.X_OK):
        raise StateError(f"{path}: cannot be written: {fix}")


def write(state: ClusterState) -> None:
    path = state_path(state.name)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(msgspec.json.encode(state))
        beside.replace(path)
    except OSError as error:
        raise StateError(f"{path}: cannot be written ({error.strerror})") from None


def mine(name: str) -> ClusterState:
    return ClusterState(name=name, pid=os.getpid(), started=started_at(os.getpid()))


@contextlib.contextmanager
def reserved(name: str) -> Iterator[None]:
    """No other process starts or cleans up a cluster of this name during the block; raises NameTaken if one does.

    The kernel ends the reservation of a killed process.
    """
    descriptor = _lock(_lock_path(name))
    try:
        yield
    finally:
        _lock_path(name).unlink(missing_ok=True)
        os.close(descriptor)


def started_at(pid: int) -> str:
    """Start time of a process in kernel ticks; empty if it does not exist, or on systems without /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def clean_up(state: ClusterState) -> None:
    """Delete the files of a cluster that has ended; a kubeconfig loses its entries, and stays if it has others."""
    root = Path(state.root) if state.root else None
    if root is not None and root.name.startswith("ap-"):  # only directories that we created
        shutil.rmtree(root, ignore_errors=True)
    for path, before in ((state.kubeconfig, ""), (state.selected_in, state.selected_before)):
        if path:
            with contextlib.suppress(contexts.ContextError):
                contexts.remove(Path(path), state.name, state.server, before)
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


def _lock_path(name: str) -> Path:
    return folder() / f".{name}.lock"


def _lock(path: Path) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StateError(f"{path}: cannot be opened ({error.strerror})") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise NameTaken(path.name) from None
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        os.close(descriptor)  # the process that had it deleted the file a moment ago
