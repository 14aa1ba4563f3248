"""`apportion up` and `apportion down`: a cluster is started, and stopped without leaving anything behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apportion.cli import cluster_files

READY_SECONDS = 60


class Command:
    """`apportion up` and `down` as a user calls them, with their own state folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._environment = os.environ | {"XDG_STATE_HOME": str(folder / "state")}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "apportion", *words]
        return subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=READY_SECONDS, check=False
        )

    def up(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run("up", "--detach", "--kubeconfig", str(self.kubeconfig), "--bare", *words)

    def state(self) -> cluster_files.ClusterState:
        found = cluster_files.read("apportion")
        assert found is not None
        return found


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    made = Command(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield made
    made.run("down")


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_up_detached_returns_when_ready_and_down_removes_it(command: Command) -> None:
    up = command.up("--nodes", "2")
    assert up.returncode == 0, up.stderr
    assert f"export KUBECONFIG={command.kubeconfig}" in up.stdout
    assert "2 node(s) ready" in up.stdout
    state = command.state()
    assert state.alive
    again = command.up()
    assert again.returncode == 1
    assert "already running" in again.stderr
    assert "Traceback" not in again.stderr
    down = command.run("down")
    assert down.returncode == 0
    assert not state.alive
    assert not Path(state.root).exists()
    assert not command.kubeconfig.exists()
    assert command.run("down").stdout == "no cluster 'apportion' is running\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc gives single pages back")
def test_t02_a_cluster_gives_back_the_memory_of_large_requests(command: Command) -> None:
    """By the C library's allocator. Whether it does is measured by the campaign of hostile requests."""
    assert command.up().returncode == 0
    state = command.state()
    assert b"\0PYTHONMALLOC=malloc\0" in b"\0" + Path(f"/proc/{state.pid}/environ").read_bytes()


def test_a_cluster_ends_cleanly_on_sigterm(command: Command) -> None:
    assert command.up().returncode == 0
    state = command.state()
    os.kill(state.pid, signal.SIGTERM)
    until(lambda: not state.alive)
    assert not Path(state.root).exists()
    assert not command.kubeconfig.exists()
    assert cluster_files.read("apportion") is None


def test_what_a_killed_cluster_left_goes_with_the_next_up(command: Command) -> None:
    assert command.up().returncode == 0
    state = command.state()
    os.kill(state.pid, signal.SIGKILL)
    until(lambda: not state.alive)
    assert Path(state.root).exists()
    assert command.up().returncode == 0
    assert not Path(state.root).exists()
    assert command.state().pid != state.pid


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--nodes", "-1"), "--nodes: -1 is negative"),
        (("--name", "A b"), "is not a valid name"),
        (("--topology", "none.yaml"), "cannot be read"),
        (("--topology", "x.yaml", "--nodes", "1"), "cannot be used together"),
        (("--sharing",), "--sharing and --bare cannot be used together"),
    ],
)
def test_bad_input_is_refused_with_the_field_and_no_traceback(
    command: Command, words: tuple[str, ...], text: str
) -> None:
    refused = command.up(*words)
    assert refused.returncode == 2
    shown = " ".join(refused.stderr.replace("│", " ").split())
    assert text in shown
    assert "Traceback" not in refused.stderr
