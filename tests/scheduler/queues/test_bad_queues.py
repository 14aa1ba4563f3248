"""Queues that are wrong, change or vanish: said where people look, and nobody else is affected."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apportion.apis import kinds
from apportion.cluster import errors
from apportion.cluster.transport import HttpRequest, Response
from tests.scheduler.cluster import ApiCluster, scheduling, until
from tests.scheduler.queues.test_eviction_faults import Onwards
from tests.scheduler.queues.workloads import Life, clear, gpu_node, gpu_pod, pods, queue

PATH = "/apis/scheduling.run.ai/v2/queues"


@pytest.fixture
async def wiped(each_cluster: ApiCluster) -> Any:
    yield each_cluster
    await clear(each_cluster)


async def sent(cluster: ApiCluster, name: str, value: str, field: str) -> str:
    """Create a queue with this JSON text as the value of a field of its GPUs; what the server says."""
    body = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}}
    text = json.dumps(body | {"spec": {"resources": {"gpu": {field: "VALUE"}}}}).replace('"VALUE"', value)
    try:
        await cluster.client.raw("POST", PATH, body=text.encode())
    except errors.ApiError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("field", ["quota", "limit", "overQuotaWeight"])
async def test_q12_bad_amounts_are_refused_with_the_field_and_others_go_on(wiped: ApiCluster, field: str) -> None:
    cluster = wiped
    await gpu_node(cluster, "n1", 2)
    await queue(cluster, "good", quota=1)
    async with scheduling(cluster):
        for number, bad in enumerate(('"1"', '"0.5"', '"NaN"', "true", "[]", "-0.5", "-2", "-1e30")):
            said = await sent(cluster, f"bad-{number}", bad, field)
            assert f"spec.resources.gpu.{field}" in said, f"{bad}: {said!r}"
            if bad.startswith("-"):
                assert "use a number of 0 or more" in said, f"{bad}: {said!r}"
        for bad in ("NaN", "Infinity", "0x10"):  # no JSON
            assert await sent(cluster, "no-json", bad, field)
        for number, odd in enumerate(("0.5", "1e3", "1e300", "0", "1e-9", "0.1")):
            assert not await sent(cluster, f"odd-{number}", odd, field), odd
        await gpu_pod(cluster, "p", "good")
        await cluster.bound("p")
        for number in range(6):
            await has_status(cluster, f"odd-{number}")


async def has_status(cluster: ApiCluster, name: str) -> None:
    async def found() -> bool:
        status = (await cluster.client.get(kinds.QUEUES, name)).get("status", {})
        return "fairShare" in status and not any(
            each["type"] == "Invalid" and each["status"] == "True" for each in status["conditions"]
        )

    await until(found)


async def test_q12_odd_amounts_count_as_written(wiped: ApiCluster) -> None:
    cluster = wiped
    await gpu_node(cluster, "n1", 4)
    for name, weight in (("half", 0.5), ("many", 1e3)):
        resources = {"gpu": {"quota": 0, "overQuotaWeight": weight}}
        await cluster.client.create(kinds.QUEUES, {"metadata": {"name": name}, "spec": {"resources": resources}})
    async with scheduling(cluster):
        for name in ("half", "many"):
            for number in range(4):
                await gpu_pod(cluster, f"{name}-{number}", name)

        async def shared_out() -> bool:
            found = {name: await fair_share(cluster, name) for name in ("half", "many")}
            return found == {"half": "2m", "many": "3998m"}

        await until(shared_out)


async def fair_share(cluster: ApiCluster, name: str) -> str:
    status = (await cluster.client.get(kinds.QUEUES, name)).get("status", {})
    return str(status.get("fairShare", {}).get("nvidia.com/gpu", ""))


async def condition(cluster: ApiCluster, name: str, kind: str) -> str:
    """The message of a condition that is true; empty if it is not."""
    found = (await cluster.client.get(kinds.QUEUES, name)).get("status", {}).get("conditions", [])
    return next((each["message"] for each in found if each["type"] == kind and each["status"] == "True"), "")


async def test_q02_a_queue_that_is_deleted_or_moved_leaves_its_pods_running(wiped: ApiCluster) -> None:
    cluster = wiped
    await gpu_node(cluster, "n1", 3)
    await queue(cluster, "top", quota=3)
    await queue(cluster, "team", quota=3, parent="top")
    await queue(cluster, "other", quota=1)
    life = Life(cluster)
    async with life.going_on(), scheduling(cluster):
        await gpu_pod(cluster, "runs", "team")
        await cluster.bound("runs")

        await cluster.client.patch(kinds.QUEUES, "team", {"spec": {"parentQueue": "nowhere"}})
        await gpu_pod(cluster, "orphan", "team")
        assert "queue team" in await waits_with(cluster, "orphan", "does not exist")

        async def orphan() -> bool:
            return "nowhere" in await condition(cluster, "team", "Orphan")

        await until(orphan)
        await cluster.client.patch(kinds.QUEUES, "team", {"spec": {"parentQueue": "other"}})
        await cluster.bound("orphan")
        await gpu_pod(cluster, "in-other", "other")
        assert "child queues" in await waits_with(cluster, "in-other", "queue other")

        await cluster.client.delete(kinds.QUEUES, "team")
        await cluster.bound("in-other")
        await gpu_pod(cluster, "lost", "team")
        await waits_with(cluster, "lost", "queue team does not exist")
        assert not life.evicted
        assert not any(pod.metadata.deleting for pod in await pods(cluster))
        await queue(cluster, "team", quota=3, parent="top")

        async def counted() -> bool:
            status = (await cluster.client.get(kinds.QUEUES, "team")).get("status", {})
            return bool(status.get("allocated", {}).get("nvidia.com/gpu") == "2")

        await until(counted)


async def waits_with(cluster: ApiCluster, pod: str, words: str) -> str:
    """Until the pod is told so."""

    async def told() -> str | None:
        text = await cluster.waits(pod)
        return text if words in text else None

    return await until(told)


async def test_q12_a_cycle_of_queues_is_named_and_other_queues_go_on(wiped: ApiCluster) -> None:
    cluster = wiped
    await gpu_node(cluster, "n1", 2)
    await queue(cluster, "good", quota=1)
    await queue(cluster, "x", quota=1, parent="y")
    await queue(cluster, "y", quota=1, parent="x")
    async with scheduling(cluster):
        await gpu_pod(cluster, "circling", "x")
        await gpu_pod(cluster, "fine", "good")
        await cluster.bound("fine")
        await waits_with(cluster, "circling", "queue x")

        async def named() -> bool:
            return "cycle" in await condition(cluster, "x", "Invalid")

        await until(named)
        await cluster.client.patch(kinds.QUEUES, "y", {"spec": {"parentQueue": None}})
        await cluster.bound("circling")


@pytest.mark.parametrize("status", [500, 403, 0], ids=["server error", "forbidden", "unreachable"])
async def test_q12_r02_a_status_that_cannot_be_written_stops_nothing(wiped: ApiCluster, status: int) -> None:
    cluster = wiped
    await gpu_node(cluster, "n1", 2)
    await queue(cluster, "a", quota=2)
    refused: list[str] = []

    async def refusing(request: HttpRequest, onwards: Onwards) -> Response:
        if request.method == "PATCH" and request.path.startswith(PATH) and len(refused) < 2:
            refused.append(request.path)
            if not status:
                raise errors.Unreachable("connection reset")
            return Response(status, {}, b'{"kind": "Status", "code": %d}' % status)
        return await onwards()

    async with scheduling(cluster, cluster.wire(refusing)):
        await until(lambda: _true(len(refused) == 2))
        await gpu_pod(cluster, "p", "a")
        await cluster.bound("p")
        await has_status(cluster, "a")


async def _true(value: object) -> bool:
    return bool(value)


async def test_q12_stored_values_that_no_schema_checked_are_named_and_other_queues_go_on(cluster: ApiCluster) -> None:
    """A CRD of another version may have let them in."""
    await gpu_node(cluster, "n1", 2)
    name = "queues.scheduling.run.ai"
    crd = await cluster.client.get(kinds.CUSTOM_RESOURCE_DEFINITIONS, name)
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec.pop("x-kubernetes-validations", None)
    spec["properties"]["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    await cluster.client.replace(kinds.CUSTOM_RESOURCE_DEFINITIONS, crd)
    values = ("-2", '"many"', '"NaN"', "[1]", "null", "1e300", '{"a": 1}')
    for number, value in enumerate(values):
        said = await sent(cluster, f"bad-{number}", value, "quota")
        assert not said, said
    await queue(cluster, "good", quota=1)
    async with scheduling(cluster):
        await gpu_pod(cluster, "fine", "good")
        await cluster.bound("fine")
        await gpu_pod(cluster, "unlucky", "bad-1")
        await waits_with(cluster, "unlucky", "queue bad-1")

        async def named() -> bool:
            return "quota" in await condition(cluster, "bad-0", "Invalid")

        await until(named)
        await cluster.client.delete(kinds.QUEUES, "bad-1")
        await gpu_pod(cluster, "also-fine", "good")
        await cluster.bound("also-fine")
