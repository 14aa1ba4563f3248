"""The client, the informer and the lease against the embedded API and a real kube-apiserver alike."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

import pytest

from apportion.apis.kinds import CONFIG_MAPS, LEASES, PODS
from apportion.apis.meta import Bare
from apportion.cluster import errors
from apportion.cluster.client import Client, PatchType
from apportion.cluster.events import Recorder, Regarding
from apportion.cluster.informer import Informer
from apportion.cluster.lease import Election
from tests.environments.cluster import Cluster


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": data}


async def test_every_verb_goes_round(any_cluster: Cluster, namespace: str) -> None:
    async with any_cluster.client() as client:
        made = await client.create(CONFIG_MAPS, config_map("a", x="1"), namespace=namespace)
        with pytest.raises(errors.AlreadyExists):
            await client.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
        made["data"] = {"x": "2"}
        changed = await client.replace(CONFIG_MAPS, made, namespace=namespace)
        with pytest.raises(errors.Conflict):
            await client.replace(CONFIG_MAPS, made, namespace=namespace)
        merged = await client.patch(CONFIG_MAPS, "a", {"data": {"y": "3"}}, namespace=namespace)
        assert merged["data"] == {"x": "2", "y": "3"}
        step = [{"op": "replace", "path": "/data/x", "value": "4"}]
        assert (await client.patch(CONFIG_MAPS, "a", step, namespace=namespace, how=PatchType.json))["data"]["x"] == "4"
        applied = await client.apply(CONFIG_MAPS, config_map("b", z="5"), namespace=namespace, field_manager="me")
        assert applied["metadata"]["managedFields"][0]["manager"] == "me"
        with pytest.raises(errors.Conflict):
            await client.delete(CONFIG_MAPS, "a", namespace=namespace, uid="somebody-else")
        await client.delete(CONFIG_MAPS, "a", namespace=namespace, uid=changed["metadata"]["uid"])
        with pytest.raises(errors.NotFound) as caught:
            await client.get(CONFIG_MAPS, "a", namespace=namespace)
        assert (caught.value.reason, caught.value.details["name"]) == ("NotFound", "a")
        with pytest.raises(errors.Invalid):
            await client.create(CONFIG_MAPS, config_map("Not A Name"), namespace=namespace)


async def test_lists_have_pages_and_watches_go_on_from_them(any_cluster: Cluster, namespace: str) -> None:
    async with any_cluster.client() as client:
        for number in range(7):
            await client.create(CONFIG_MAPS, config_map(f"m{number}"), namespace=namespace)
        listing = await client.list(CONFIG_MAPS, namespace=namespace, fields="metadata.name!=m3", limit=2, into=Bare)
        names = [item.metadata.name for item in listing.items if item.metadata.name.startswith("m")]
        assert names == ["m0", "m1", "m2", "m4", "m5", "m6"]
        await client.create(CONFIG_MAPS, config_map("new"), namespace=namespace)
        await client.delete(CONFIG_MAPS, "new", namespace=namespace)
        watch = client.watch(CONFIG_MAPS, namespace=namespace, resource_version=listing.resource_version, into=Bare)
        async with asyncio.timeout(10), aclosing(watch) as events:
            assert [(await anext(events)).type for _ in range(2)] == ["ADDED", "DELETED"]


async def test_a_pod_is_bound_once_and_only_under_its_uid(any_cluster: Cluster, namespace: str) -> None:
    async with any_cluster.client() as client:
        body = {
            "metadata": {"name": "p"},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "busybox"}]},
        }
        uid = (await _created(client, body, namespace))["metadata"]["uid"]
        with pytest.raises(errors.Conflict):
            await client.bind(namespace, "p", "00000000-0000-0000-0000-000000000000", "n1")
        await client.bind(namespace, "p", uid, "n1")
        assert (await client.get(PODS, "p", namespace=namespace))["spec"]["nodeName"] == "n1"
        with pytest.raises(errors.Conflict):
            await client.bind(namespace, "p", uid, "n2")
        await client.delete(PODS, "p", namespace=namespace, grace=0)


async def test_an_informer_follows(any_cluster: Cluster, namespace: str) -> None:
    async with any_cluster.client() as client:
        informer = Informer(client, CONFIG_MAPS, into=Bare, namespace=namespace, labels="mine=yes")
        seen: list[tuple[bool, bool]] = []
        informer.on_change(lambda old, new: seen.append((old is not None, new is not None)))
        task = asyncio.create_task(informer.run())
        try:
            async with asyncio.timeout(20):
                await informer.synced()
                body = config_map("a")
                body["metadata"]["labels"] = {"mine": "yes"}  # type: ignore[index]
                await client.create(CONFIG_MAPS, body, namespace=namespace)
                await client.patch(CONFIG_MAPS, "a", {"data": {"x": "1"}}, namespace=namespace)
                await client.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {"mine": None}}}, namespace=namespace)
                while len(seen) < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        assert seen == [(False, True), (True, True), (True, False)]


async def test_a_lease_has_one_holder(any_cluster: Cluster, namespace: str) -> None:
    async with any_cluster.client() as client:
        first, second = (
            Election(client, name="l", namespace=namespace, identity=name, duration=2, renew_deadline=1.5, retry=0.1)
            for name in ("first", "second")
        )
        led: list[str] = []

        async def lead_once() -> None:
            led.append("first")

        assert await first._attempt()
        assert not await second._attempt()
        await first.run(lead_once)
        async with asyncio.timeout(10):
            await second._campaign()
        assert led == ["first"]
        lease = await client.get(LEASES, "l", namespace=namespace)
        assert lease["spec"]["holderIdentity"] == "second"


async def test_events_are_counted(any_cluster: Cluster, namespace: str) -> None:
    async with any_cluster.client() as client:
        recorder = Recorder(client, "tester")
        task = asyncio.create_task(recorder.run())
        about = Regarding.pod(namespace, "p", "u1")
        for text in ("one", "two", "one"):
            recorder.warn(about, "Tested", text)
        async with asyncio.timeout(10):
            await recorder.flush()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        printed = await client.raw("GET", f"/api/v1/namespaces/{namespace}/events")
        assert printed.count(b'"reason":"Tested"') == 2
        assert b'"count":2' in printed


async def _created(client: Client, body: dict[str, object], namespace: str) -> dict[str, dict[str, str]]:
    """A new namespace gets its default service account a moment later."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await client.create(PODS, body, namespace=namespace)
            except errors.Forbidden:
                await asyncio.sleep(0.1)
