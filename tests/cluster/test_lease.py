"""Leader election: never two leaders, and a process that was stopped for too long no longer leads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from apportion.apis.kinds import LEASES
from apportion.cluster.client import Client
from apportion.cluster.lease import Election
from apportion.cluster.transport import HttpRequest, HttpTransport, Response
from tests.cluster.scripted_api import ScriptedApi
from tests.scheduler.cluster import Wire

PATH = "/apis/coordination.k8s.io/v1/namespaces/das-operator/leases"


class Clock:
    """A process's own clock, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def candidate(client: Client, identity: str, clock: Clock) -> Election:
    return Election(
        client,
        name="l",
        namespace="das-operator",
        identity=identity,
        now=clock,
        duration=15,
        renew_deadline=10,
        retry=0.02,
    )


async def test_the_first_one_holds_and_the_second_waits(api: ScriptedApi, client: Client) -> None:
    clock = Clock()
    first, second = candidate(client, "first", clock), candidate(client, "second", clock)
    assert await first._attempt()
    assert not await second._attempt()
    assert first.holds()
    assert not second.holds()
    assert second.leader == "first"
    assert api.collections[PATH]["l"]["spec"]["holderIdentity"] == "first"


async def test_it_is_taken_over_only_after_its_whole_duration_unchanged(client: Client) -> None:
    clock = Clock()
    first, second = candidate(client, "first", clock), candidate(client, "second", clock)
    assert await first._attempt()
    assert not await second._attempt()
    clock.now = 9
    assert await first._attempt()
    clock.now = 16
    assert not await second._attempt(), "the first renewed it meanwhile"
    clock.now = 30.9
    assert not await second._attempt()
    assert not first.holds()
    clock.now = 31
    assert await second._attempt()
    assert second.holds()


async def test_a_leader_that_was_stopped_knows_it_before_it_sends_anything(client: Client) -> None:
    ours, theirs = Clock(), Clock()
    first, second = candidate(client, "first", ours), candidate(client, "second", theirs)
    assert await first._attempt()
    assert not await second._attempt()
    theirs.now = 20
    assert await second._attempt()
    ours.now = 20
    assert not first.holds()
    assert not await first._attempt(), "and it does not take back what another one holds"


async def test_time_counts_from_before_the_renewal_was_sent(client: Client) -> None:
    clock = Clock()
    election = candidate(client, "first", clock)
    original = client.create

    async def slow_create(*args: object, **options: object) -> object:
        answer = await original(*args, **options)  # type: ignore[call-overload]
        clock.now += 9
        return answer

    client.create = slow_create  # type: ignore[method-assign,assignment]
    assert await election._attempt()
    assert election.holds()
    clock.now += 1
    assert not election.holds()


async def test_work_runs_while_leading_and_is_stopped_when_the_lease_is_lost(client: Client) -> None:
    clock = Clock()
    first = candidate(client, "first", clock)
    started, stopped = asyncio.Event(), asyncio.Event()

    async def lead() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    task = asyncio.create_task(first.run(lead))
    try:
        async with asyncio.timeout(30):
            await started.wait()
            lease = await client.get(LEASES, "l", namespace="das-operator")
            lease["spec"]["holderIdentity"] = "usurper"
            del lease["metadata"]["resourceVersion"]
            await client.replace(LEASES, lease, namespace="das-operator")
            await stopped.wait()
        assert not first.holds()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_leader_that_ends_gives_the_lease_back(api: ScriptedApi, client: Client) -> None:
    clock = Clock()

    async def nothing() -> None:
        return

    await candidate(client, "first", clock).run(nothing)
    assert api.collections[PATH]["l"]["spec"]["holderIdentity"] == ""
    assert await candidate(client, "second", clock)._attempt()


async def test_a_leader_that_ends_during_a_renewal_gives_the_lease_back(api: ScriptedApi, client: Client) -> None:
    renewed = asyncio.Event()

    async def keep_the_answer(request: HttpRequest, onwards: Callable[[], Awaitable[Response]]) -> Response:
        response = await onwards()
        if request.method == "PUT" and not renewed.is_set():
            renewed.set()
            await asyncio.Event().wait()
        return response

    async with Client(Wire(HttpTransport(api.url), keep_the_answer)) as slow:
        task = asyncio.create_task(candidate(slow, "first", Clock()).run(asyncio.Event().wait))
        await renewed.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert api.collections[PATH]["l"]["spec"]["holderIdentity"] == ""


async def test_renewals_that_fail_end_the_leadership_in_time(api: ScriptedApi, client: Client) -> None:
    clock = Clock()
    election = candidate(client, "first", clock)
    ended = asyncio.Event()

    async def lead() -> None:
        api.fail("GET", 500, times=10_000)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(election.run(lead))
    try:
        async with asyncio.timeout(30):
            while not api.faults:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            assert not ended.is_set(), "a hiccup is survived"
            clock.now = 10
            await ended.wait()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
