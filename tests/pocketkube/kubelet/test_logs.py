"""Logs as `kubectl logs` asks for them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pocketkube.kubelet.containers import logs
from pocketkube.kubelet.containers.logs import ContainerLog, LogSelection, PodLogs


class Ticking:
    """A clock that moves one second with every question."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        self.seconds += 1
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def read(log: ContainerLog, **options: object) -> str:
    return b"".join([chunk async for chunk in log.read(LogSelection(**options))]).decode()  # type: ignore[arg-type]


async def test_lines_tail_since_timestamps_and_limits(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "c/0.log", Ticking())
    log.write("one\ntw")
    log.write("o\n")
    log.write("oops\n", "stderr")
    log.write("no end")
    assert await read(log) == "one\ntwo\noops\n"
    assert await read(log, tail=1) == "oops\n"
    assert await read(log, tail=0) == ""
    assert await read(log, since=1002.5) == "oops\n"
    assert await read(log, limit_bytes=5) == "one\nt"
    assert (await read(log, timestamps=True, tail=1)).startswith("1970-01-01T00:16:43.000000000Z oops")
    log.close()
    assert await read(log, tail=1) == "no end\n"
    assert (tmp_path / "c/0.log").read_text().splitlines()[2].split(" ", 1)[1] == "stderr F oops"


async def test_following_sees_what_comes_and_ends_with_the_run(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "c/0.log", Ticking())
    log.write("first\n")
    seen: list[bytes] = []

    async def follow() -> None:
        async for chunk in log.read(LogSelection(follow=True)):
            seen.append(chunk)  # noqa: PERF401  read as it comes

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.01)
    for number in range(3):
        log.write(f"{number}\n")
        await asyncio.sleep(0.01)
    assert not following.done()
    log.write("last\n")
    log.close()
    async with asyncio.timeout(30):
        await following
    assert b"".join(seen) == b"first\n0\n1\n2\nlast\n"


async def test_a_long_log_is_rotated_and_whoever_follows_it_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "ROTATED_AT", 400)
    log = ContainerLog(tmp_path / "c/0.log", Ticking())
    seen: list[bytes] = []

    async def follow() -> None:
        async for chunk in log.read(LogSelection(follow=True)):
            seen.append(chunk)  # noqa: PERF401  read as it comes

    following = asyncio.create_task(follow())
    lines = [f"line {number}" for number in range(60)]
    for line in lines:
        log.write(f"{line}\n")
        await asyncio.sleep(0)
    log.close()
    async with asyncio.timeout(30):
        await following
    assert b"".join(seen).decode().splitlines() == lines
    kept = (await read(log)).splitlines()
    assert kept == lines[-len(kept) :]
    assert len(kept) < len(lines)
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["0.log", "0.log.1"]
    log.remove()
    assert not list((tmp_path / "c").iterdir())


async def test_the_run_before_is_kept_and_older_ones_are_not(tmp_path: Path) -> None:
    kept = PodLogs(tmp_path, Ticking())
    assert kept.find("c", previous=False) is None
    for number in range(3):
        log = kept.begin("c", number)
        log.write(f"run {number}\n")
        log.close()
    present, before = kept.find("c", previous=False), kept.find("c", previous=True)
    assert present is not None
    assert before is not None
    assert (await read(present), await read(before)) == ("run 2\n", "run 1\n")
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["1.log", "2.log"]
