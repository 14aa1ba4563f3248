"""Owners are followed kind by kind; pods wait a moment for an owner that was not shown yet, and nobody else does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from apportion.apis import kinds, names
from apportion.apis.kinds import Kind
from apportion.cluster.transport import HttpRequest, Response
from apportion.view.groups import groups as grouping
from apportion.view.waiting import WaitingPod
from tests.builders import groups, pods
from tests.scheduler.cluster import ApiCluster, embedded
from tests.view.followed import followed, read_afresh

Json = dict[str, Any]
Onwards = Callable[[], Awaitable[Response]]
OWN = {names.QUEUE_LABEL: "own"}
GONE = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "gone", "uid": "gone"}}


@pytest.fixture
async def cluster() -> AsyncIterator[ApiCluster]:
    async with embedded() as made:
        yield made


class Requests:
    """Notes the paths of requests; `before` may answer instead of the server."""

    def __init__(self, before: Callable[[HttpRequest], Awaitable[Response | None]] | None = None) -> None:
        self.paths: list[str] = []
        self._before = before

    async def __call__(self, request: HttpRequest, onwards: Onwards) -> Response:
        self.paths.append(request.path)
        answer = await self._before(request) if self._before is not None else None
        return answer or await onwards()


async def test_q11_a_kind_that_no_pod_of_ours_names_is_not_read(cluster: ApiCluster) -> None:
    await cluster.client.create(kinds.JOBS, groups.job("other"))
    requests = Requests()
    async with followed(cluster, requests) as made:
        await made.pod("bare", labels=OWN)
        await made.read("bare", queue="own", group=None)
        foreign = await made.create(kinds.JOBS, groups.job("foreign", queue="team"))
        await made.pod("theirs", owner=foreign, scheduler=names.DEFAULT_SCHEDULER)
        await made.read("theirs", queue="default-queue")
        assert not [path for path in requests.paths if "/batch" in path or "/apps" in path]
        assert len(made.view.groups.owners) == 0


async def test_q11_an_owner_whose_kind_is_not_installed_costs_nothing_and_the_label_of_the_pod_counts(
    each_cluster: ApiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "HOLD_SECONDS", 3600.0)
    requests = Requests()
    async with followed(each_cluster, requests) as made:
        missing = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "x", "uid": "x"}}
        for number in range(5):
            await made.pod(f"p{number}", owner=missing, labels=OWN)
            await made.read(f"p{number}", queue="own", group=None)
        assert [path for path in requests.paths if "ray.io" in path] == ["/apis/ray.io"]
        unknown = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x", "uid": "y"}}
        await made.pod("unknown", owner=unknown, labels=OWN)
        await made.read("unknown", queue="own", group=None)
        assert not [path for path in requests.paths if "example.com" in path]
    view = await read_afresh(each_cluster)
    assert {each.reading.request.queue for each in view.waiting if each.reading.request} == {"own"}
    assert not any(each.held for each in view.waiting)


async def test_q11_an_owner_that_may_not_be_read_costs_nothing_and_the_label_of_the_pod_counts(
    cluster: ApiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "HOLD_SECONDS", 3600.0)

    async def refuse(request: HttpRequest) -> Response | None:
        if not request.path.endswith("/jobs"):
            return None
        status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}
        return Response(403, {}, json.dumps(status).encode(), None)

    async with followed(cluster, Requests(refuse)) as made:
        job = await made.create(kinds.JOBS, groups.job("train", queue="team"))
        await made.pod("a", owner=job, labels=OWN)
        await made.read("a", queue="own", group=None)


async def test_q11_a_pod_is_not_decided_about_before_its_owner_is_known_and_others_are(
    cluster: ApiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "HOLD_SECONDS", 3600.0)
    open_gate = asyncio.Event()

    async def late(request: HttpRequest) -> None:
        if request.path.endswith("/jobs"):
            await open_gate.wait()

    async with followed(cluster, Requests(late)) as made:
        told: list[tuple[str, str]] = []

        def listen(uid: str, waiting: WaitingPod | None) -> None:
            if waiting is not None and waiting.reading.request is not None:
                told.append((waiting.reading.request.name, waiting.reading.request.queue))

        made.view.waiting.on_change(listen)
        job = await made.create(kinds.JOBS, groups.job("train", queue="team"))
        await made.pod("a", owner=job, labels=OWN)
        await made.pod("bare", labels=OWN)
        await made.read("bare", queue="own")
        waiting = made.waiting("a")
        assert waiting is not None
        assert waiting.held
        assert told == [("bare", "own")]
        open_gate.set()
        await made.read("a", queue="team")
        assert told == [("bare", "own"), ("a", "team")]


async def test_q11_a_pod_whose_owner_is_gone_is_decided_about_after_a_moment(
    cluster: ApiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "HOLD_SECONDS", 0.5)
    async with followed(cluster) as made:
        await made.pod("a", owner=GONE, labels=OWN)
        await made.until(lambda: made.waiting("a"))
        waiting = made.waiting("a")
        assert waiting is not None
        assert waiting.held
        await made.read("a", queue="own", group=None)


async def test_q11_owners_of_pods_that_are_there_at_the_start_are_known_with_the_first_sync(
    cluster: ApiCluster,
) -> None:
    client = cluster.client
    made_job = await client.create(kinds.JOBS, groups.job("train", queue="team"))
    job = {"apiVersion": "batch/v1", "kind": "Job", **made_job}
    uid = await cluster.pod("bare")
    for name in "ab":
        await client.create(kinds.PODS, groups.owned(pods.our_pod(name), job))
    async with followed(cluster) as made:
        assert not any(each.held for each in made.view.waiting)
        queues = {
            each.pod.metadata.name: each.reading.request.queue for each in made.view.waiting if each.reading.request
        }
        assert queues == {"a": "team", "b": "team", "bare": "default-queue"}
        assert made.view.waiting.get(uid) is not None


async def test_q11_a_kind_that_is_installed_after_its_pods_is_followed_from_then_on(
    cluster: ApiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apportion.view.owner_informers.ABSENT_SECONDS", 0.1)
    clusters = Kind("ray.io", "v1", "rayclusters", "RayCluster")
    body = groups.owner(clusters.api_version, "RayCluster", "ray", queue="team", spec={"headGroupSpec": {}})
    async with followed(cluster) as made:
        await made.install(clusters)
        above = await made.create(clusters, body)
        await made.client.delete(kinds.CUSTOM_RESOURCE_DEFINITIONS, "rayclusters.ray.io")
        await made.pod("a", owner=above, labels=OWN)
        await made.read("a", queue="own")
        await made.install(clusters)
        again = await made.create(clusters, body)
        await made.pod("b", owner=again, labels=OWN)
        await made.read("b", queue="team", group=f"pg-ray-{again['metadata']['uid']}")


async def test_q11_of_an_owner_only_what_is_read_is_kept(cluster: ApiCluster) -> None:
    async with followed(cluster) as made:
        job = await made.create(kinds.JOBS, groups.job("train", queue="team", labels={"large": "label"}))
        await made.pod("a", owner=job)
        await made.read("a", queue="team")
        kept = made.view.groups.owners.get(job["metadata"]["uid"])
        assert kept is not None
        assert "spec" not in kept
        assert kept["metadata"]["labels"] == {names.QUEUE_LABEL: "team"}
