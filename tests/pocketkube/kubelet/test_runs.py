"""Containers as child processes and as simulations: output, exit codes, signals, and an end with their parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from pocketkube.clock import SystemClock
from pocketkube.kubelet import pod_annotations
from pocketkube.kubelet.container_files import ContainerFiles
from pocketkube.kubelet.containers.logs import ContainerLog
from pocketkube.kubelet.runtime.processes import ProcessRun
from pocketkube.kubelet.runtime.runs import Launch
from pocketkube.kubelet.runtime.simulated import SimulatedRun
from pocketkube.kubelet.sandbox.connection import Sandbox


@pytest.fixture
def launch(tmp_path: Path) -> Callable[..., Launch]:
    def make(*argv: str, env: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> Launch:
        log = ContainerLog(tmp_path / "0.log", SystemClock())
        files = ContainerFiles(tmp_path / "scratch")
        return Launch("a" * 64, list(argv), env or {}, "host", files, log, annotations or {})

    return make


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    made = Sandbox(SystemClock())
    yield made
    await made.stop()


def printed(launch: Launch) -> str:
    launch.log.close()
    return "\n".join(line.split(" ", 3)[3] for line in launch.log.path.read_text().splitlines())


async def test_a_process_prints_into_its_log_and_ends_with_its_code(launch: Callable[..., Launch]) -> None:
    given = launch(sys.executable, "-c", "import os; print(os.environ['X']); raise SystemExit(3)", env={"X": "hello"})
    async with asyncio.timeout(20):
        assert await ProcessRun.start(given).wait() == 3
    assert printed(given) == "hello"


async def test_a_process_that_is_killed_reports_the_signal(launch: Callable[..., Launch]) -> None:
    given = launch(sys.executable, "-c", "import time; time.sleep(60)")
    run = ProcessRun.start(given)
    run.kill()
    async with asyncio.timeout(20):
        assert await run.wait() == 137
    run.terminate()
    run.kill()


def test_a_child_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import asyncio, sys
        from pathlib import Path
        from pocketkube.clock import SystemClock
        from pocketkube.kubelet.container_files import ContainerFiles
        from pocketkube.kubelet.containers.logs import ContainerLog
        from pocketkube.kubelet.runtime import processes
        from pocketkube.kubelet.runtime.runs import Launch
        async def main():
            folder = Path({str(tmp_path)!r})
            log = ContainerLog(folder / "0.log", SystemClock())
            words = [sys.executable, "-c", "import time; time.sleep(60)"]
            launch = Launch("a", words, {{}}, "h", ContainerFiles(folder), log)
            print(processes.ProcessRun.start(launch).pid, flush=True)
            await asyncio.sleep(60)
        asyncio.run(main())
    """)
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.kill(child, 0)
    parent.kill()
    parent.wait()
    end = time.monotonic() + 10
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < end, "the child outlived its parent"
        time.sleep(0.02)


async def test_a_simulated_script_prints_and_ends_with_its_code(
    launch: Callable[..., Launch], sandbox: Sandbox
) -> None:
    given = launch("sh", "-c", "echo $X; echo bad >&2; exit 4", env={"X": "hello"})
    assert await SimulatedRun(given, SystemClock(), sandbox).wait() == 4
    assert printed(given) == "hello\nbad"


@pytest.mark.parametrize(
    ("script", "after_term"),
    [
        ("echo up; sleep 100", 143),
        ("trap '' TERM; echo up; sleep 100", None),
        ("trap 'echo bye; exit 5' TERM; echo up; sleep 100", 5),
        ("trap 'echo not yet' TERM; echo up; sleep 100", None),
    ],
)
async def test_a_simulated_container_gets_signals(
    launch: Callable[..., Launch], sandbox: Sandbox, script: str, after_term: int | None
) -> None:
    given = launch("sh", "-c", script)
    run = SimulatedRun(given, SystemClock(), sandbox)
    async with asyncio.timeout(30):
        while "up" not in given.log.path.read_text():  # noqa: ASYNC110  a file has no event to wait for
            await asyncio.sleep(0.01)
    run.terminate()
    if after_term is None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await run.wait()
        run.kill()
    async with asyncio.timeout(30):
        assert await run.wait() == (after_term or 128 + signal.SIGKILL)


async def test_annotations_give_the_length_and_outcome_of_work_that_cannot_be_run(
    launch: Callable[..., Launch], sandbox: Sandbox
) -> None:
    given = launch(annotations={pod_annotations.SIMULATED_SECONDS: "0.05", pod_annotations.SIMULATED_EXIT_CODE: "9"})
    async with asyncio.timeout(30):
        assert await SimulatedRun(given, SystemClock(), sandbox).wait() == 9


async def test_no_process_can_have_the_number_of_a_simulated_one(
    launch: Callable[..., Launch], sandbox: Sandbox
) -> None:
    run = SimulatedRun(launch(), SystemClock(), sandbox)
    assert run.pid > 4_194_304
    run.kill()
    assert await run.wait() == 137
