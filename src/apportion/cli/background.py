"""A cluster in the background: `up --detach` starts the same command in a session of its own and waits for it.

Ctrl-C or SIGTERM while it waits ends what it started.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import typer

from apportion.cli import cluster_files

FAILURE = 1
STOP_SECONDS = 20.0
_LOOK_SECONDS = 0.05
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Interrupted(Exception):
    """A signal came."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def run(name: str) -> None:
    """Return when the cluster is ready; otherwise exit."""
    log = cluster_files.log_path(name)
    with _interruptible():
        child: subprocess.Popen[bytes] | None = None
        try:
            child = _start(log)
            _follow(name, child, log)
        except _Interrupted as interrupted:
            if child is not None:
                _stop(name, child)
            typer.echo(f"interrupted: cluster {name!r} is stopped", err=True)
            raise typer.Exit(128 + interrupted.number) from None


def _start(log: Path) -> subprocess.Popen[bytes]:
    arguments = [word for word in sys.argv[1:] if word not in ("--detach", "-d")]
    try:
        with log.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "apportion", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise cluster_files.StateError(f"{log}: cannot be written ({error.strerror})") from None


def _follow(name: str, child: subprocess.Popen[bytes], log: Path) -> None:
    """Print what it says until it is ready."""
    shown = 0
    while True:
        code = child.poll()
        state = cluster_files.read(name)
        shown = _show(log, shown)
        if code is not None:
            typer.echo(f"cluster {name!r} did not start; its log is {log}", err=True)
            raise typer.Exit(code or FAILURE)
        if state is not None and state.pid == child.pid and state.phase == cluster_files.READY:
            _show(log, shown)
            return
        time.sleep(_LOOK_SECONDS)


def _stop(name: str, child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    state = cluster_files.read(name)
    if state is not None and state.pid == child.pid:
        cluster_files.clean_up(state)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Signals raise _Interrupted in the block, once; further ones do not interrupt the clean-up."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise _Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(log: Path, shown: int) -> int:
    text = log.read_text(errors="replace")[shown:]
    if text:
        typer.echo(text, nl=False)
    return shown + len(text)
