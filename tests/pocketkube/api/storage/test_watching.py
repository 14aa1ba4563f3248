"""Watches: order, selectors, bookmarks, expiry, ends."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from apportion.apis import kinds
from apportion.cluster import errors
from apportion.cluster.client import Client, PatchType
from apportion.cluster.transport import HttpRequest
from pocketkube.api.server import ApiServer
from pocketkube.api.storage import watching
from tests.pocketkube.api.direct_requests import MERGE_PATCH, DirectRequests, config_map

MAPS = "/api/v1/namespaces/default/configmaps"


def story(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


async def test_a_watch_without_version_begins_with_what_is_there(ask: DirectRequests) -> None:
    await ask("POST", MAPS, config_map("a"))
    await ask("POST", MAPS, config_map("b"))
    assert story(await ask.events(f"{MAPS}?watch=1&timeoutSeconds=1")) == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_watch_from_a_version_replays_what_came_after_in_order(ask: DirectRequests) -> None:
    made = (await ask("POST", MAPS, config_map("a"))).body
    await ask("PATCH", f"{MAPS}/a", {"data": {"x": "y"}}, media=MERGE_PATCH)
    await ask("POST", MAPS, config_map("b"))
    await ask("DELETE", f"{MAPS}/a")
    events = await ask.events(f"{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={made['metadata']['resourceVersion']}")
    assert story(events) == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(versions)


async def test_no_event_is_lost_between_a_list_and_a_watch(client: Client) -> None:
    seen: set[str] = set()
    done = asyncio.Event()

    async def follow() -> None:
        listing = await client.list(kinds.CONFIG_MAPS, namespace="default")
        seen.update(each["metadata"]["name"] for each in listing.items)
        async for event in client.watch(
            kinds.CONFIG_MAPS, namespace="default", resource_version=listing.resource_version, timeout_seconds=20
        ):
            assert event.object is not None
            seen.add(event.object["metadata"]["name"])
            if len(seen) == 100:
                done.set()

    async def write(offset: int) -> None:
        for number in range(50):
            await client.create(kinds.CONFIG_MAPS, config_map(f"c{offset + number}"), namespace="default")

    follower = asyncio.create_task(follow())
    await asyncio.gather(write(0), write(50))
    async with asyncio.timeout(20):
        await done.wait()
    follower.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await follower


async def test_objects_come_into_and_go_out_of_view(client: Client) -> None:
    events: list[tuple[str, str, str]] = []

    async def follow() -> None:
        async for event in client.watch(
            kinds.CONFIG_MAPS, namespace="default", resource_version="0", labels="x=1", timeout_seconds=2
        ):
            assert event.object is not None
            meta = event.object["metadata"]
            events.append((event.type, meta["name"], (meta.get("labels") or {}).get("x", "")))

    follower = asyncio.create_task(follow())
    await asyncio.sleep(0.05)
    await client.create(kinds.CONFIG_MAPS, config_map("a", labels={"x": "0"}), namespace="default")
    for label in ("1", "1", "2", "1"):
        patch = {"metadata": {"labels": {"x": label}}, "data": {"n": str(len(events))}}
        await client.patch(kinds.CONFIG_MAPS, "a", patch, namespace="default", how=PatchType.merge)
        await asyncio.sleep(0.02)
    await client.delete(kinds.CONFIG_MAPS, "a", namespace="default")
    await follower
    assert events == [
        ("ADDED", "a", "1"),
        ("MODIFIED", "a", "1"),
        ("DELETED", "a", "1"),
        ("ADDED", "a", "1"),
        ("DELETED", "a", "1"),
    ]


async def test_a_version_that_history_forgot_is_gone(ask: DirectRequests, server: ApiServer, client: Client) -> None:
    await ask("POST", MAPS, config_map("a"))
    server.store.compact()
    (event,) = await ask.events(f"{MAPS}?watch=1&resourceVersion=1")
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    with pytest.raises(errors.Gone):
        await anext(aiter(client.watch(kinds.CONFIG_MAPS, namespace="default", resource_version="1")))


async def test_bookmarks_tell_the_newest_version_before_the_watch_ends(
    ask: DirectRequests, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "BOOKMARK_BEFORE_END", 0.5)
    await ask("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "elsewhere"}})
    events = await ask.events(
        f"{MAPS}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion={server.store.revision}"
    )
    assert [event["type"] for event in events] == ["BOOKMARK"]
    assert events[0]["object"]["metadata"]["resourceVersion"] == str(server.store.revision)
    assert events[0]["object"]["kind"] == "ConfigMap"


async def test_initial_events_end_with_a_marked_bookmark(ask: DirectRequests) -> None:
    await ask("POST", MAPS, config_map("a"))
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    events = await ask.events(f"{MAPS}?watch=1&timeoutSeconds=1&{query}")
    assert [event["type"] for event in events[:2]] == ["ADDED", "BOOKMARK"]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_table_events_name_their_columns_once(ask: DirectRequests, server: ApiServer) -> None:
    await ask("POST", MAPS, config_map("a"))
    await ask("POST", MAPS, config_map("b"))
    accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    response = await server.handle(
        HttpRequest("GET", MAPS, (("watch", "1"), ("timeoutSeconds", "1")), accept), ask._user
    )
    assert response.stream is not None
    import json

    lines = b"".join([chunk async for chunk in response.stream]).splitlines()
    tables = [json.loads(line)["object"] for line in lines]
    assert [table["kind"] for table in tables] == ["Table", "Table"]
    assert bool(tables[0]["columnDefinitions"])
    assert not tables[1]["columnDefinitions"]


async def test_a_watch_on_one_name_sees_nothing_else(ask: DirectRequests) -> None:
    await ask("POST", MAPS, config_map("a"))
    await ask("POST", MAPS, config_map("b"))
    by_field = await ask.events(f"{MAPS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=b")
    by_path = await ask.events("/api/v1/watch/namespaces/default/configmaps/b?timeoutSeconds=1")
    assert story(by_field) == story(by_path) == [("ADDED", "b")]


async def test_a_watch_that_is_closed_or_cut_off_leaves_nothing_behind(server: ApiServer, client: Client) -> None:
    before = len(server.watches)
    watch = client.watch(kinds.CONFIG_MAPS, namespace="default", resource_version="0")
    await client.create(kinds.CONFIG_MAPS, config_map("a"), namespace="default")
    async for _ in watch:
        break
    await watch.aclose()
    response = await server.handle(HttpRequest("GET", MAPS, (("watch", "1"),)), None)
    assert response.status == 403
    assert len(server.watches) == before


async def test_a_client_that_does_not_read_is_cut_off(
    server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "BACKLOG", 5)
    from pocketkube.api.request_attributes import ADMIN

    response = await server.handle(HttpRequest("GET", MAPS, (("watch", "1"), ("resourceVersion", "1"))), ADMIN)
    for number in range(10):
        await client.create(kinds.CONFIG_MAPS, config_map(f"c{number}"), namespace="default")
    assert response.stream is not None
    async with asyncio.timeout(30):
        chunks = [chunk async for chunk in response.stream]
    assert chunks == []


async def test_the_end_of_the_server_ends_its_watches(server: ApiServer, client: Client) -> None:
    async def follow() -> None:
        async for _ in client.watch(kinds.CONFIG_MAPS, namespace="default", resource_version="0"):
            pass

    follower = asyncio.create_task(follow())
    await asyncio.sleep(0.05)
    await server.close()
    async with asyncio.timeout(30):
        await follower
