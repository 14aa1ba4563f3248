"""A pod is moved and its scheduler dies right after the eviction: the next one keeps the place for the successor."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from apportion.apis import kinds, names
from apportion.apis.meta import Bare
from apportion.apis.placements import SlicePlacement
from apportion.cli import why
from apportion.cluster import errors
from apportion.cluster.transport import HttpRequest, Response
from apportion.core.fleet_facts import Reservation
from apportion.core.operations import KeepPlaces
from apportion.core.queues.accounts import Charge
from apportion.core.queues.amounts import Amounts
from apportion.scheduler.place_notes import PlaceNotes
from apportion.view import kept_places
from tests.builders.pods import pod_request
from tests.cli.cli_runner import called
from tests.scheduler.cluster import NAMESPACE, ApiCluster, scheduling, until
from tests.scheduler.queues.test_eviction_faults import evicts
from tests.scheduler.queues.workloads import Life, clear, gpu_node, gpu_pod, pods, queue, running

Onwards = Callable[[], Awaitable[Response]]


@pytest.fixture
async def wiped(each_cluster: ApiCluster) -> Any:
    yield each_cluster
    await clear(each_cluster)


async def half_full(cluster: ApiCluster) -> None:
    """One pod on each node: two GPUs are free, but on two nodes."""
    await queue(cluster, "a", quota=0)
    await queue(cluster, "b", quota=4)
    for number in (1, 2):
        await gpu_node(cluster, f"n{number}", 2)
        await running(cluster, f"m{number}", "b", f"n{number}", owner=f"owner-m{number}")


@asynccontextmanager
async def dying_after(cluster: ApiCluster, wanted: Callable[[HttpRequest], bool]) -> AsyncIterator[asyncio.Event]:
    """A scheduler whose line is cut for good once the server has done such a request."""
    dead = asyncio.Event()

    async def cut(request: HttpRequest, onwards: Onwards) -> Response:
        if dead.is_set():
            raise errors.Unreachable("this process is dead")
        response = await onwards()
        if wanted(request):
            dead.set()
            raise errors.Unreachable("cut")
        return response

    async with scheduling(cluster, cluster.wire(cut)):
        yield dead
    await cluster.end_lease()


async def moved_by_a_leader_that_died(cluster: ApiCluster, life: Life) -> str:
    """A pod was evicted so that a large one has a node; the number of the one that was."""
    await half_full(cluster)
    async with dying_after(cluster, evicts) as dead:
        await gpu_pod(cluster, "large", "b", gpus=2)
        await asyncio.wait_for(dead.wait(), 30)
    await until(lambda: _one(life.evicted))
    (name,) = life.evicted
    return name.removeprefix("m")


async def owner_of(cluster: ApiCluster, pod: str) -> str:
    """The uid of the ReplicaSet that `half_full` made for a pod."""
    found = await cluster.client.get(kinds.REPLICA_SETS, f"owner-{pod}", namespace="default", into=Bare)
    return found.metadata.uid


async def _one(found: object) -> bool:
    return bool(found)


async def notes(cluster: ApiCluster) -> dict[str, str]:
    found = await cluster.client.get(kinds.CONFIG_MAPS, names.PLACE_NOTES, namespace=NAMESPACE)
    data: dict[str, str] = found.get("data") or {}
    return data


async def test_q06_r02_the_place_of_a_successor_survives_its_leader(wiped: ApiCluster) -> None:
    cluster = wiped
    life = Life(cluster, remake=False)
    async with life.going_on():
        gone = await moved_by_a_leader_that_died(cluster, life)
        await gpu_pod(cluster, "rival", "b")
        async with scheduling(cluster):
            assert await cluster.bound("large") == {"large": f"n{gone}"}
            await cluster.waits("rival")
            code, out, err = await called(why.command, pod="rival", output="json", kubeconfig=cluster.kubeconfig)
            assert (code, json.loads(out)["state"]) == (0, "waiting"), err
            await gpu_pod(cluster, "successor", "b", owner=await owner_of(cluster, f"m{gone}"))
            left = {"1": "n2", "2": "n1"}[gone]
            assert await cluster.bound("successor") == {"successor": left}
            await cluster.waits("rival")
        assert life.evicted.keys() == {f"m{gone}"}


async def test_q06_r02_the_place_is_free_when_its_time_is_over_whoever_leads(
    wiped: ApiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = wiped
    monkeypatch.setattr(kept_places, "SUCCESSOR_SECONDS", 6)
    life = Life(cluster, remake=False)
    async with life.going_on():
        await moved_by_a_leader_that_died(cluster, life)
        (note,) = (await notes(cluster)).values()
        until_then = json.loads(note)["until"]
        await gpu_pod(cluster, "rival", "b")
        async with scheduling(cluster):
            await cluster.bound("large", "rival")
            assert time.time() >= until_then
        await cluster.end_lease()
        monkeypatch.setattr(kept_places, "SUCCESSOR_SECONDS", 300)
        async with scheduling(cluster):  # the note is still there, and nobody cares
            await cluster.delete("rival")
            await gpu_pod(cluster, "another", "b")
            await cluster.bound("another")


async def test_q06_r02_a_leader_that_died_before_the_eviction_has_kept_nothing(wiped: ApiCluster) -> None:
    cluster = wiped

    def written(request: HttpRequest) -> bool:
        return "configmaps" in request.path and request.method == "POST"

    life = Life(cluster)
    await half_full(cluster)
    async with life.going_on():
        async with dying_after(cluster, written) as dead:
            await gpu_pod(cluster, "large", "b", gpus=2)
            await asyncio.wait_for(dead.wait(), 30)
        assert len(await notes(cluster)) == 1
        assert not life.evicted
        async with scheduling(cluster):
            await cluster.bound("large")
            await until(lambda: _one(life.evicted))
            (gone,) = life.evicted

            async def made_anew() -> str | None:
                found = [pod for pod in await pods(cluster) if "." in pod.metadata.name]
                return found[0].spec.node_name if found else None

            assert await until(made_anew) == {"m1": "n2", "m2": "n1"}[gone]


async def test_q06_notes_are_read_until_their_time_is_over_and_removed_with_the_next_one(wiped: ApiCluster) -> None:
    cluster, now = wiped, 1_800_000_000.0

    def leader() -> PlaceNotes:
        return PlaceNotes(cluster.client, NAMESPACE, today=lambda: now)

    def keep(name: str) -> KeepPlaces:
        moved = pod_request(f"moved-for-{name}", gpus=1)
        place = Reservation(
            f"place-{name}",
            "n1",
            moved.resources,
            slices=(SlicePlacement("GPU-1", "3g.20gb", 4, 4),),
            owner=f"successor/{name}",
            after=("x",),
            shares=(("GPU-2", 1000),),
            charge=Charge("q", Amounts(1500, 1, 2), fixed=True),
        )
        return KeepPlaces(pod_request(name), (moved,), (place,))

    first = leader()
    assert await first.read() == []
    assert not await first.exists(keep("a"))
    for _ in range(2):
        await first.write(keep("a"))
    assert await first.exists(keep("a"))
    now += 60
    await first.write(keep("b"))
    ahead = 30  # the clock of the next leader, in seconds
    now += 60 - ahead
    next_leader = PlaceNotes(cluster.client, NAMESPACE, today=lambda: now + ahead)
    ((place, left),) = await next_leader.read()
    assert place.reservation == keep("b").reservations[0]
    assert (place.pod, left) == (keep("b").moved[0].uid, 60)
    now += 30
    bad = {"data": {"bad": '{"since": 0}'}}
    await cluster.client.patch(kinds.CONFIG_MAPS, names.PLACE_NOTES, bad, namespace=NAMESPACE)
    third = leader()
    assert [each.reservation.key for each, _ in await third.read()] == ["place-b"]
    await third.write(keep("c"))
    assert (await notes(cluster)).keys() == {keep(each).request.uid for each in ("b", "c")}


async def test_q06_a_clock_that_is_behind_keeps_no_place_longer_than_its_time(wiped: ApiCluster) -> None:
    moved = pod_request("moved", gpus=1)
    place = Reservation("place", "n1", moved.resources, owner="successor/a")
    await PlaceNotes(wiped.client, NAMESPACE, today=lambda: 1_800_000_000).write(
        KeepPlaces(pod_request("taker"), (moved,), (place,))
    )
    behind = PlaceNotes(wiped.client, NAMESPACE, today=lambda: 1_700_000_000)
    ((_, left),) = await behind.read()
    assert left == kept_places.SUCCESSOR_SECONDS
