"""Whatever happens to the test run, its cluster goes with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environments import binaries, cgroups
from tests.environments.fixtures import require
from tests.environments.waiting import until

pytestmark = pytest.mark.real

RUN = """
import signal, sys, time
from pathlib import Path
from tests.environments import cgroups
from tests.environments.sandbox import Sandbox, run

signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background inherits that it is ignored
sandbox = Sandbox(Path(sys.argv[1]))
sleeper = sandbox.start("sleeper", ["sleep", "600"])
run(sandbox, ["ip", "link", "add", "left-over0", "type", "bridge"])
run(sandbox, ["mount", "-t", "tmpfs", "left-over", "/mnt"])
cgroups.create(f"{sandbox.cgroup}/n1")
for hierarchy in ("pids", ""):
    group = cgroups.MOUNT / hierarchy / sandbox.cgroup / "n1" / "cgroup.procs"
    if group.exists():
        group.write_text(str(sleeper.pid))
print(sandbox.supervisor, sleeper.pid, sandbox.cgroup, flush=True)
time.sleep(600)
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    require(binaries.CONTROL_PLANE)
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path / "sandbox")], cwd=binaries.ROOT, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_run_is_killed(
    run: subprocess.Popen[str], tmp_path: Path, how: signal.Signals
) -> None:
    supervisor, sleeper, group = _facts(run)
    inside = _links_and_mounts(sleeper)
    assert "left-over0" in inside
    assert "left-over /mnt" in inside
    run.send_signal(how)
    run.wait(timeout=60)

    until(lambda: _gone(supervisor) and _gone(sleeper), "the processes end", within=60)
    assert "left-over" not in _links_and_mounts(os.getpid())
    assert not _groups(group)
    assert not (tmp_path / "sandbox" / "data").exists()
    assert (tmp_path / "sandbox" / "logs").exists()


def test_processes_end_with_a_killed_supervisor_and_the_next_run_removes_its_cgroups(
    run: subprocess.Popen[str],
) -> None:
    supervisor, sleeper, group = _facts(run)
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: _gone(sleeper), "the processes end", within=60)
    run.kill()
    run.wait()

    cgroups.sweep()
    assert not _groups(group)


def test_a_sweep_spares_runs_that_still_go_on(run: subprocess.Popen[str]) -> None:
    supervisor, sleeper, group = _facts(run)
    cgroups.sweep()
    assert _groups(group)
    assert not _gone(sleeper)
    run.kill()
    run.wait()
    until(lambda: _gone(supervisor), "the supervisor ends", within=60)


def _facts(run: subprocess.Popen[str]) -> tuple[int, int, str]:
    assert run.stdout is not None
    supervisor, sleeper, group = run.stdout.readline().split()
    return int(supervisor), int(sleeper), group


def _links_and_mounts(pid: int) -> str:
    """Network devices and mounts as a process sees them."""
    return Path(f"/proc/{pid}/net/dev").read_text() + Path(f"/proc/{pid}/mounts").read_text()


def _gone(pid: int) -> bool:
    return cgroups.started(pid) == 0


def _groups(name: str) -> list[Path]:
    return [folder for folder in (*cgroups.MOUNT.glob(f"*/{name}"), *cgroups.MOUNT.glob(name)) if folder.exists()]
