"""Events: repeats are counted, bursts are limited, recording never waits or fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.events import BURST, LAST_SECONDS, Recorder, Regarding
from apportion.cluster.transport import HttpRequest, HttpTransport, Response
from tests.cluster.scripted_api import ScriptedApi
from tests.scheduler.cluster import Wire

PATH = "/api/v1/namespaces/default/events"
POD = Regarding.pod("default", "p", "u1")


@asynccontextmanager
async def writing(recorder: Recorder) -> AsyncIterator[Recorder]:
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
        async with asyncio.timeout(30):
            await recorder.flush()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_an_event_says_what_kubectl_describe_shows(api: ScriptedApi, client: Client) -> None:
    async with writing(Recorder(client, "das-scheduler")) as recorder:
        recorder.warn(POD, "FailedScheduling", "no place")
    (event,) = api.collections[PATH].values()
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "namespace": "default",
        "uid": "u1",
    }
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "FailedScheduling", "no place")
    assert event["source"] == {"component": "das-scheduler"}
    assert event["count"] == 1


async def test_the_same_again_raises_the_count_also_after_a_restart(api: ScriptedApi, client: Client) -> None:
    async with writing(Recorder(client, "s")) as recorder:
        recorder.warn(POD, "R", "same")
        recorder.warn(POD, "R", "same")
        recorder.warn(POD, "R", "other")
    async with writing(Recorder(client, "s")) as recorder:
        recorder.warn(POD, "R", "same")
    counts = {event["message"]: event["count"] for event in api.collections[PATH].values()}
    assert counts == {"same": 3, "other": 1}


async def test_an_expired_event_is_written_anew(api: ScriptedApi, client: Client) -> None:
    async with writing(Recorder(client, "s")) as recorder:
        recorder.warn(POD, "R", "same")
        await recorder.flush()
        api.collections[PATH].clear()
        recorder.warn(POD, "R", "same")
    assert [event["count"] for event in api.collections[PATH].values()] == [1]


async def test_a_burst_of_events_about_one_object_is_limited_and_others_are_written(
    api: ScriptedApi, client: Client
) -> None:
    now = 0.0
    async with writing(Recorder(client, "s", now=lambda: now)) as recorder:
        for number in range(200):
            recorder.warn(POD, "R", f"message {number}")
        recorder.warn(Regarding.pod("default", "q", "u2"), "R", "hello")
        assert recorder.dropped == 200 - BURST
        now = 300.0
        recorder.warn(POD, "R", "again")
    assert len(api.collections[PATH]) == BURST + 2


async def test_an_api_that_refuses_events_stops_nothing_else(api: ScriptedApi, client: Client) -> None:
    api.fail("POST", 403, reason="Forbidden")
    async with writing(Recorder(client, "s")) as recorder:
        recorder.warn(POD, "R", "lost")
        recorder.warn(POD, "R", "kept")
    assert [event["message"] for event in api.collections[PATH].values()] == ["kept"]


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_an_api_that_cannot_take_events_for_a_moment_gets_them_later(
    api: ScriptedApi, client: Client, code: int
) -> None:
    api.fail("POST", code)
    async with writing(Recorder(client, "s")) as recorder:
        recorder.warn(POD, "R", "kept")
    assert [event["count"] for event in api.collections[PATH].values()] == [1]
    assert recorder.dropped == 0


async def test_an_event_whose_answer_is_lost_is_counted_once(api: ScriptedApi, client: Client) -> None:
    lost = 0

    async def lose(request: HttpRequest, onwards: Callable[[], Awaitable[Response]]) -> Response:
        nonlocal lost
        response = await onwards()
        if request.method == "POST" and not lost:
            lost += 1
            raise errors.Unreachable("the answer is lost")
        return response

    async with Client(Wire(HttpTransport(api.url), lose)) as lossy, writing(Recorder(lossy, "s")) as recorder:
        recorder.warn(POD, "R", "once")
    assert lost == 1
    assert [event["count"] for event in api.collections[PATH].values()] == [1]


async def test_an_event_that_is_being_written_when_the_recorder_stops_is_written(
    api: ScriptedApi, client: Client
) -> None:
    begun = asyncio.Event()

    async def slow(_: HttpRequest, onwards: Callable[[], Awaitable[Response]]) -> Response:
        begun.set()
        await asyncio.sleep(LAST_SECONDS / 4)
        return await onwards()

    async with Client(Wire(HttpTransport(api.url), slow)) as slowed:
        recorder = Recorder(slowed, "s")
        task = asyncio.create_task(recorder.run())
        recorder.warn(POD, "R", "under way")
        recorder.warn(POD, "R", "queued")
        await begun.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert [event["message"] for event in api.collections[PATH].values()] == ["under way", "queued"]
