"""Programs that would take all time, memory or space: they harm their own pod and nobody else (T01)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from apportion.apis import kinds
from pocketkube.clock import SystemClock
from pocketkube.kubelet.container_files import ContainerFiles
from pocketkube.kubelet.containers.logs import LONGEST_ENTRY, ContainerLog, LogSelection
from pocketkube.kubelet.runtime.runs import Launch, StartError
from pocketkube.kubelet.runtime.simulated import SimulatedRun
from pocketkube.kubelet.sandbox.connection import Sandbox
from pocketkube.kubelet.shell.limits import Allowance, OutOfMemoryError, Shared, SharedLimits
from tests.pocketkube.cluster import RunningCluster, embedded, pod

PATIENCE = 120.0
ENDLESS = {
    "backtracking": 'printf "%s" "$A$A$A!" > /tmp/a; while :; do grep -E "(a+)+$" /tmp/a; done',
    "seq": "seq 1 30000000",
    "yes": "yes",
    "no newline": "while :; do echo -n xxxxxxxxxxxxxxxx; done",
    "loop": "while :; do :; done",
    "background": "while :; do : & done",
    "pipelines": "while :; do yes | grep n | sort | head; done",
    "substitutions": "while :; do x=$(seq 1 1000); done",
    "sleeps": "while :; do sleep 0.0001; done",
    "clock": "while :; do date; done",
    "files": "while :; do i=$((i + 1)); echo $A > /tmp/$i; done",
    "one file": "yes > /tmp/y",
}
KILLED = {
    "doubling": "x=x; while :; do x=$x$x; done",
    "one word": "x=" + "x" * 1000 + "; x=$x$x$x$x$x$x$x$x$x$x; x=$x$x$x$x$x$x$x$x$x$x; " + "echo " + "$x" * 500,
    "variables": "while :; do i=$((i + 1)); export v$i=$A; done",
    "output": "x=$(yes)",
    "sort": "yes $A | sort",
    "splitting": "for i in $(yes); do :; done",
}
ENDING = {
    "power": ("echo $((9**9**9)) $((2**62 * 2 + 1))", " -9223372036854775807"),
    "recursion": ('x=\'eval "$x"\'; eval "$x"; echo $?', "maximum recursion depth"),
    "shells": ('export x=\'sh -c "$x"\'; sh -c "$x"; echo $?', "maximum recursion depth"),
    "groups": ("{ " * 3000 + "echo; " + "} ;" * 3000, "nested too deeply"),
    "outputs": ("echo " + "$(echo " * 3000 + ")" * 3000, "nested too deeply"),
    "jobs": ("for i in $(seq 1 100); do sleep 100 & done; echo all", "cannot fork"),
    "bad pattern": ("grep '(' /etc/x; echo $?", "missing"),
    "huge number": ("seq 1 " + "9" * 5000, "invalid argument"),
    "width": ("printf '%1000000000d' 1; echo .", "%1000000000d."),
    "deep folders": ("mkdir -p /tmp" + "/a" * 500 + "; echo over", "File name too long"),
    "long argument": ('x=$(seq 1 30000); echo $x | wc -c; echo "$x"', "Argument list too long"),
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with embedded(tmp_path) as made:
        yield made


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    made = Sandbox(SystemClock())
    yield made
    await made.stop()


def launch(folder: Path, script: str, name: str = "p") -> Launch:
    log = ContainerLog(folder / f"{name}.log", SystemClock())
    files = ContainerFiles(folder / name)
    return Launch("a" * 64, ["sh", "-c", script], {"A": "a" * 1000}, "host", files, log)


def memory_of(pid: int) -> int:
    """Bytes in use."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Turns:
    """How the event loop of this process, which is the server's, gets its turns."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._task = asyncio.create_task(self._count())

    async def _count(self) -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0)
            self.longest = max(self.longest, time.thread_time() - began)

    def stop(self) -> None:
        self._task.cancel()


async def test_t01_hostile_programs_do_not_take_the_time_of_the_server(cluster: RunningCluster) -> None:
    """All at once, and another pod's program still has its turns. Long turns of the server's loop are counted in
    processor time, which the load of the machine does not change."""
    turns = Turns()
    for number, script in enumerate(ENDLESS.values()):
        body = pod(f"hostile-{number}", "sh", "-c", script, container={"env": [{"name": "A", "value": "a" * 1000}]})
        await cluster.create(kinds.PODS, body)
    for number in range(len(ENDLESS)):
        await cluster.until_phase(f"hostile-{number}", "Running", within=PATIENCE)
    await cluster.create(kinds.PODS, pod("good", "sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.1; done; echo fine"))
    await cluster.until_log("good", "fine", within=PATIENCE)
    answered = 0
    async with asyncio.timeout(PATIENCE):
        for _ in range(200):
            await cluster.list(kinds.PODS)
            await asyncio.sleep(0.01)
            answered += 1
    turns.stop()
    assert answered == 200
    assert turns.longest < 0.5, "one turn of the server took too long"
    for body in await cluster.list(kinds.PODS):
        assert body["metadata"]["name"] == "good" or body["status"]["phase"] == "Running", body["status"]


@pytest.mark.parametrize("script", ENDLESS.values(), ids=ENDLESS)
async def test_t01_an_endless_program_uses_little_and_can_be_stopped(
    tmp_path: Path, sandbox: Sandbox, script: str
) -> None:
    run = SimulatedRun(launch(tmp_path, script), SystemClock(), sandbox)
    other = SimulatedRun(launch(tmp_path, "for i in 1 2 3; do sleep 0.1; done", "other"), SystemClock(), sandbox)
    async with asyncio.timeout(PATIENCE):
        assert await other.wait() == 0
        assert sandbox.pid is not None
        assert memory_of(sandbox.pid) < 200 * 1024 * 1024
        run.terminate()
        assert await run.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize("script", KILLED.values(), ids=KILLED)
async def test_t01_a_program_with_too_much_memory_is_killed(tmp_path: Path, sandbox: Sandbox, script: str) -> None:
    other = SimulatedRun(launch(tmp_path, "sleep 1000", "other"), SystemClock(), sandbox)
    given = launch(tmp_path, script)
    run = SimulatedRun(given, SystemClock(), sandbox)
    async with asyncio.timeout(PATIENCE):
        assert await run.wait() == 128 + signal.SIGKILL
    assert run.reason == "OOMKilled"
    given.log.close()
    assert "killed: out of memory" in given.log.path.read_text()
    assert sandbox.pid is not None
    assert memory_of(sandbox.pid) < 300 * 1024 * 1024
    other.kill()
    assert await other.wait() == 128 + signal.SIGKILL


def test_t01_the_largest_program_is_killed_if_all_together_use_too_much() -> None:
    shared = Shared(SharedLimits(memory=100))
    killed: list[str] = []
    large, small = (Allowance(shared=shared, killed=partial(killed.append, name)) for name in ("large", "small"))
    large.hold(70)
    small.hold(30)
    assert not killed
    small.hold(1)
    assert killed == ["large"]
    large.close()
    small.hold(60)
    with pytest.raises(OutOfMemoryError):
        small.hold(20)


@pytest.mark.parametrize(("script", "text"), ENDING.values(), ids=ENDING)
async def test_t01_what_grows_too_deep_or_too_wide_ends_with_a_message(
    tmp_path: Path, sandbox: Sandbox, script: str, text: str
) -> None:
    given = launch(tmp_path, script)
    run = SimulatedRun(given, SystemClock(), sandbox)
    ended = asyncio.create_task(run.wait())
    async with asyncio.timeout(PATIENCE):
        while text not in (found := given.log.path.read_text()):
            assert not ended.done(), found
            await asyncio.sleep(0.01)
    run.kill()
    await ended


async def test_t01_a_killed_container_says_so_in_its_status(cluster: RunningCluster) -> None:
    await cluster.create(kinds.PODS, pod("p", "sh", "-c", KILLED["doubling"], restartPolicy="Never"))
    failed = await cluster.until_phase("p", "Failed", within=PATIENCE)
    ended = failed["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)


async def test_t01_if_the_process_of_programs_ends_its_containers_are_restarted(cluster: RunningCluster) -> None:
    await cluster.create(kinds.PODS, pod("always", "sh", "-c", "echo up; sleep 1000"))
    await cluster.create(kinds.PODS, pod("never", "sh", "-c", "echo up; sleep 1000", restartPolicy="Never"))
    for name in ("always", "never"):
        await cluster.until_log(name, "up")
    first = cluster.pocketkube.sandbox.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    failed = await cluster.until_phase("never", "Failed")
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137

    def restarted(body: dict[str, Any]) -> bool:
        (state,) = body["status"]["containerStatuses"]
        return state["restartCount"] == 1 and state["ready"]

    await cluster.until(kinds.PODS, "always", restarted)
    await cluster.until_log("always", "up")
    assert cluster.pocketkube.sandbox.pid not in (None, first)


async def test_t01_the_process_of_programs_is_started_when_it_is_needed(cluster: RunningCluster) -> None:
    await cluster.create(kinds.PODS, pod("p", image="registry.example/server:1"))
    await cluster.until_phase("p", "Running")
    assert cluster.pocketkube.sandbox.pid is None


async def test_t01_an_exec_probe_with_much_output_is_cut(tmp_path: Path, sandbox: Sandbox) -> None:
    run = SimulatedRun(launch(tmp_path, "sleep 1000"), SystemClock(), sandbox)
    async with asyncio.timeout(PATIENCE):
        code, output = await run.execute(["sh", "-c", "seq 1 20000; exit 3"])
    assert (code, len(output)) == (3, 10_240)
    run.kill()
    await run.wait()


async def test_t01_arguments_are_limited_as_in_the_kernel(tmp_path: Path, sandbox: Sandbox) -> None:
    with pytest.raises(StartError, match="argument list too long"):
        SimulatedRun(launch(tmp_path, "x" * 140_000), SystemClock(), sandbox)
    assert sandbox.pid is None


async def test_t01_lines_without_an_end_are_cut_and_read_as_one(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log", SystemClock())
    text = "x" * (3 * LONGEST_ENTRY + 7) + "\v\u2028y\nz"
    for start in range(0, len(text), 1000):
        log.write(text[start : start + 1000])
    log.close()
    assert b"".join([chunk async for chunk in log.read(LogSelection())]).decode() == text + "\n"
    assert max(len(line) for line in log.path.read_text().split("\n")) < LONGEST_ENTRY + 100
    assert log.last_lines(2, 4) == "\u2028y\nz"
