"""R03: a scheduler that does not lead logs the decisions of the one that does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from apportion.apis import names
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.events import Recorder, Regarding
from apportion.cluster.transport import HttpRequest, Response
from apportion.scheduler.standby import decision_log
from apportion.scheduler.standby.decision_log import DecisionLog
from tests.scheduler import cluster as clusters
from tests.scheduler.cluster import NAMESPACE, ApiCluster, until

POD = Regarding.pod("default", "a", "uid-a")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(decision_log, "SETTLE_SECONDS", 0.01)
    monkeypatch.setattr(decision_log, "PAUSE_SECONDS", 0.02)
    caplog.set_level(logging.INFO, decision_log.__name__)


@asynccontextmanager
async def following(client: Client) -> AsyncIterator[DecisionLog]:
    standby = DecisionLog(client, NAMESPACE)
    task = asyncio.create_task(standby.run())
    try:
        yield standby
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def write(cluster: ApiCluster, component: str, reason: str, message: str) -> None:
    recorder = Recorder(cluster.client, component)
    writing = asyncio.create_task(recorder.run())
    recorder.record(POD, reason, message)
    await recorder.flush()
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == decision_log.__name__]


async def standing_by(caplog: pytest.LogCaptureFixture) -> None:
    async def said() -> bool:
        return sum(line.startswith("standing by") for line in lines(caplog)) == len(decision_log.COMPONENTS)

    await until(said)
    await asyncio.sleep(0.2)  # the watches are open


async def test_r03_a_decision_logs_the_decisions_of_scheduler_and_binder(caplog: pytest.LogCaptureFixture) -> None:
    async with clusters.embedded() as cluster:
        await write(cluster, names.DAS_SCHEDULER, "Scheduled", "before it stood by")
        async with following(cluster.client):
            await standing_by(caplog)
            assert any("GPU" in line for line in lines(caplog)), "the log command of the documentation finds a line"
            await write(cluster, "kubelet", "Pulled", "of no interest")
            await write(cluster, names.DAS_SCHEDULER, "FailedScheduling", "0/1 nodes have a free GPU")
            await write(cluster, names.BINDER_APP, "Bound", "bound to node n1, GPU-1")

            async def told() -> bool:
                return {
                    "pod default/a: 0/1 nodes have a free GPU",
                    "pod default/a: bound to node n1, GPU-1",
                } <= set(lines(caplog))

            await until(told)
    assert not any("of no interest" in line or "before it stood by" in line for line in lines(caplog))


async def test_r03_a_leader_does_not_follow_and_stands_by_again_afterwards(caplog: pytest.LogCaptureFixture) -> None:
    async with clusters.embedded() as cluster, following(cluster.client) as standby:
        await standing_by(caplog)
        ended = asyncio.Event()

        async def lead() -> None:
            await write(cluster, names.DAS_SCHEDULER, "Scheduled", "by this process")
            await asyncio.sleep(0.1)
            ended.set()

        await standby.quiet_during(lead)
        assert ended.is_set()
        assert not any("by this process" in line for line in lines(caplog))
        caplog.clear()
        await standing_by(caplog)
        await write(cluster, names.DAS_SCHEDULER, "Scheduled", "by the next leader")

        async def told() -> bool:
            return any("by the next leader" in line for line in lines(caplog))

        await until(told)


async def test_r03_events_that_cannot_be_read_are_told_once_and_stop_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with clusters.embedded() as cluster:
        refusals = 0

        async def refuse(request: HttpRequest, onwards: Callable[[], Awaitable[Response]]) -> Response:
            nonlocal refusals
            refusals += 1
            raise errors.Unreachable("no answer")

        async with Client(cluster.wire(refuse)) as client, following(client) as standby:

            async def tried() -> bool:
                return refusals > 3 * len(decision_log.COMPONENTS)

            await until(tried)
            await standby.quiet_during(lambda: asyncio.sleep(0.05))
    said = [line for line in lines(caplog) if "cannot be followed" in line]
    assert len(said) == len(decision_log.COMPONENTS)
