"""A leadership that ends while something is being written: what the server did is reported, and the next one begins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from apportion.apis import kinds
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.events import Recorder
from apportion.cluster.lease import Election
from apportion.cluster.transport import HttpRequest, Response
from apportion.scheduler import cycles
from apportion.scheduler.main import Leadership
from apportion.scheduler.settings import Settings
from tests.scheduler.cluster import NAMESPACE, ApiCluster, Wire, background, scheduling, until

Onwards = Callable[[], Awaitable[Response]]
WITHIN = cycles.LAST_SECONDS / 4  # an answer that comes in time


class Watched(Election):
    """Says when it campaigns and when it stops renewing; can be told that its renewals are late."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, name="watched", namespace=NAMESPACE, identity="watched", retry=0.1)
        self.late = False
        self.campaigns = 0
        self.stopped = asyncio.Event()

    def holds(self) -> bool:
        return not self.late and super().holds()

    async def _campaign(self) -> None:
        self.campaigns += 1
        await super()._campaign()

    async def _keep(self) -> None:
        await super()._keep()
        self.stopped.set()


@asynccontextmanager
async def leading(wire: Wire) -> AsyncIterator[Watched]:
    async with Client(wire) as client:
        election, recorder = Watched(client), Recorder(client, "watched")
        lead = Leadership(client, election, Settings(), recorder).lead
        async with background(recorder.run()), background(election.run(lead)):
            yield election


async def scheduled(cluster: ApiCluster, uid: str) -> int:
    """Events that say that this pod has a node; a real API server keeps those of earlier tests."""
    listing = await cluster.client.list(kinds.EVENTS, namespace="default", fields="reason=Scheduled")
    return sum(event["involvedObject"]["uid"] == uid for event in listing.items)


async def test_r02_a_lease_that_expires_during_a_commit_is_campaigned_for_again(cluster: ApiCluster) -> None:
    """The commit ends the leadership, and while its parts end the election ends it too."""
    await cluster.node("n1")
    election: Watched
    ending = asyncio.Event()

    async def expire(request: HttpRequest, onwards: Onwards) -> Response:
        if request.path.endswith("/namespaces") and ("watch", "true") in request.query:
            try:
                await asyncio.Event().wait()
            finally:  # a connection that closes slowly
                ending.set()
                await election.stopped.wait()
                await asyncio.sleep(0.1)
        if request.method == "PUT":  # a renewal: the election finds out after the commit
            await ending.wait()
        response = await onwards()
        if request.method == "POST" and request.path.endswith("/allocationclaims"):
            election.late = True  # before the binding is written
        return response

    await cluster.pod("a", slices={"1g.5gb": 1})
    async with leading(cluster.wire(expire)) as election:

        async def campaigns_again() -> bool:
            return election.campaigns > 1

        await until(campaigns_again)
        election.late = False
        await cluster.bound("a")


async def test_r02_a_lease_that_expires_during_a_commit_and_is_renewed_begins_a_new_leadership(
    cluster: ApiCluster,
) -> None:
    await cluster.node("n1")
    election: Watched
    renewing, ended = asyncio.Event(), asyncio.Event()

    async def renew_late(request: HttpRequest, onwards: Onwards) -> Response:
        if request.path.endswith("/namespaces") and ("watch", "true") in request.query:
            try:
                await asyncio.Event().wait()
            finally:
                election.late = False
                ended.set()
        if request.method == "PUT":
            renewing.set()
            await ended.wait()
        response = await onwards()
        if request.method == "POST" and request.path.endswith("/allocationclaims") and not ended.is_set():
            await renewing.wait()
            election.late = True  # before the binding is written
        return response

    await cluster.pod("a", slices={"1g.5gb": 1})
    async with leading(cluster.wire(renew_late)) as election:
        await cluster.bound("a")
        assert ended.is_set()
        assert election.campaigns == 1


async def test_s06_a_pod_that_is_bound_while_the_scheduler_stops_gets_its_event(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    acted = asyncio.Event()

    async def answer_late(request: HttpRequest, onwards: Onwards) -> Response:
        response = await onwards()
        if request.path.endswith("/binding"):
            acted.set()
            await asyncio.sleep(WITHIN)
        return response

    uid = await cluster.pod("a", slices={"1g.5gb": 1})
    async with scheduling(cluster, cluster.wire(answer_late)):
        await acted.wait()
    assert await scheduled(cluster, uid) == 1


@pytest.mark.parametrize("known_first_to", ["a commit", "the election"])
async def test_s06_a_pod_that_is_bound_when_the_lease_is_lost_gets_its_event(
    cluster: ApiCluster, known_first_to: str
) -> None:
    await cluster.node("n1")
    election: Watched
    both = asyncio.Barrier(2)

    async def lose(request: HttpRequest, onwards: Onwards) -> Response:
        response = await onwards()
        if request.path.endswith("/a/binding"):
            if known_first_to == "a commit":
                await both.wait()
            election.late = True
            await election.stopped.wait()
            await asyncio.sleep(WITHIN)
            raise errors.Unreachable("the answer is lost")
        if request.method == "POST" and b'"name":"b"' in (request.body or b"") and not election.late:
            await both.wait()
        return response

    uid = await cluster.pod("a", slices={"1g.5gb": 1})
    if known_first_to == "a commit":
        await cluster.pod("b", slices={"1g.5gb": 1})  # whose binding is the next write
    async with leading(cluster.wire(lose)) as election:

        async def told() -> bool:
            return await scheduled(cluster, uid) == 1

        await until(told)


async def test_s06_a_statement_that_is_begun_is_finished_before_the_scheduler_stops(cluster: ApiCluster) -> None:
    """No claim is left for a successor to find; what was not begun is left to it."""
    await cluster.node("n1")
    begun = asyncio.Event()

    async def slow(request: HttpRequest, onwards: Onwards) -> Response:
        if request.method == "POST" and request.path.endswith("/allocationclaims"):
            begun.set()
            await asyncio.sleep(WITHIN)
        return await onwards()

    await cluster.pod("a", slices={"1g.5gb": 1})
    async with scheduling(cluster, cluster.wire(slow)):
        await begun.wait()
        await cluster.pod("b", slices={"1g.5gb": 1})
    assert (await cluster.get("a")).spec.node_name == "n1"
    claims = await cluster.claims()
    bound = [name for name in ("a", "b") if (await cluster.get(name)).spec.node_name]
    assert sorted(claim.spec.pod_ref.name for claim in claims) == bound
