"""Lists, pages, selectors, watches."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.contract.raw_requests import MERGE_PATCH, TABLE, RawRequests, config_map, pod

MINE = {"mine": "yes"}  # the real controllers put objects of their own into every namespace


async def make(ask: RawRequests, maps: str, *names: str, **labels: str) -> None:
    for name in names:
        assert (await ask("POST", maps, config_map(name, labels={**MINE, **labels}))).code == 201


def names(listing: dict[str, Any]) -> list[str]:
    return [each["metadata"]["name"] for each in listing["items"]]


async def test_pages_show_the_state_of_the_first_one(ask: RawRequests, namespace: str) -> None:
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    for name in "abcde":
        await ask("POST", secrets, {"metadata": {"name": name}})
    first = (await ask("GET", secrets, limit="2")).body
    assert (names(first), first["metadata"]["remainingItemCount"]) == (["a", "b"], 3)
    await ask("DELETE", f"{secrets}/d")
    await ask("POST", secrets, {"metadata": {"name": "b2"}})
    second = (await ask("GET", secrets, limit="2", **{"continue": first["metadata"]["continue"]})).body
    assert names(second) == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    last = (await ask("GET", secrets, limit="2", **{"continue": second["metadata"]["continue"]})).body
    assert names(last) == ["e"]
    assert not last["metadata"].get("continue")


async def test_with_a_selector_the_remaining_items_are_not_counted(ask: RawRequests, maps: str) -> None:
    await make(ask, maps, "a", "b", "c")
    page = (await ask("GET", maps, limit="1", labelSelector="mine")).body["metadata"]
    assert page["continue"]
    assert "remainingItemCount" not in page


async def test_a_list_can_be_had_as_it_was(ask: RawRequests, maps: str) -> None:
    await make(ask, maps, "a")
    then = (await ask("GET", maps)).body["metadata"]["resourceVersion"]
    await make(ask, maps, "b")
    exact = await ask("GET", maps, labelSelector="mine", resourceVersion=then, resourceVersionMatch="Exact")
    assert (names(exact.body), exact.meta["resourceVersion"]) == (["a"], then)
    newer = await ask("GET", maps, labelSelector="mine", resourceVersion=then, resourceVersionMatch="NotOlderThan")
    assert names(newer.body) == ["a", "b"]


async def test_a_version_of_the_future_is_refused(ask: RawRequests, maps: str) -> None:
    answer = await ask("GET", maps, resourceVersion="999999999")
    assert (answer.code, answer.reason) == (504, "Timeout")
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"limit": "x"}, 400),
        ({"continue": "zzz"}, 400),
        ({"resourceVersion": "abc"}, 400),
        ({"labelSelector": "a b"}, 400),
        ({"labelSelector": "=b"}, 400),
        ({"labelSelector": "a in (x"}, 400),
        ({"labelSelector": "a===b"}, 400),
        ({"labelSelector": "a,,b"}, 400),
        ({"labelSelector": "-a"}, 400),
        ({"fieldSelector": "nonsense"}, 400),
        ({"fieldSelector": "data.x=y"}, 400),
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422),
        ({"resourceVersionMatch": "Nonsense", "resourceVersion": "1"}, 422),
        ({"watch": "true", "sendInitialEvents": "true"}, 422),
    ],
)
async def test_bad_options_are_refused(ask: RawRequests, maps: str, query: dict[str, str], code: int) -> None:
    answer = await ask("GET", maps, **query)
    assert (answer.code, answer.body["kind"]) == (code, "Status")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("mine", ["a", "b", "c"]),
        ("mine,x=1", ["a"]),
        ("mine,x!=1", ["b", "c"]),
        ("mine,x in (1,2)", ["a", "b"]),
        ("mine,x notin (1)", ["b", "c"]),
        ("mine,x", ["a", "b"]),
        ("mine,!x", ["c"]),
        ("mine,x>1", ["b"]),
        ("mine,x==2", ["b"]),
    ],
)
async def test_label_selectors(ask: RawRequests, maps: str, selector: str, expected: list[str]) -> None:
    await make(ask, maps, "a", x="1")
    await make(ask, maps, "b", x="2")
    await make(ask, maps, "c")
    assert names((await ask("GET", maps, labelSelector=selector)).body) == expected


async def test_field_selectors_of_pods(ask: RawRequests, pods: str) -> None:
    await ask("POST", pods, pod("a"))
    await ask("POST", pods, pod("b"))
    await ask("PATCH", f"{pods}/b/status", {"status": {"phase": "Running", "podIP": "10.0.0.9"}}, MERGE_PATCH)
    for selector, expected in (
        ("metadata.name=a", ["a"]),
        ("metadata.name!=a", ["b"]),
        ("status.phase=Running", ["b"]),
        ("spec.nodeName=", ["a", "b"]),
        ("spec.schedulerName=nobody,status.podIP=10.0.0.9", ["b"]),
        ("spec.restartPolicy=Never", []),
    ):
        assert names((await ask("GET", pods, fieldSelector=selector)).body) == expected, selector


async def test_events_come_in_order_and_say_what_happened(ask: RawRequests, maps: str) -> None:
    start = (await ask("GET", maps)).meta["resourceVersion"]
    async with ask.following(maps, resourceVersion=start, labelSelector="mine") as watch:
        await make(ask, maps, "a", "b")
        await ask("PATCH", f"{maps}/a", {"data": {"x": "y"}}, MERGE_PATCH)
        await ask("DELETE", f"{maps}/b")
        await watch.until(4)
    assert watch.story == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in watch.events]
    assert versions == sorted(versions)
    assert len(set(versions)) == 4


async def test_a_watch_from_a_version_misses_nothing_and_repeats_nothing(ask: RawRequests, maps: str) -> None:
    await make(ask, maps, "a")
    seen = (await ask("GET", f"{maps}/a")).meta["resourceVersion"]
    await make(ask, maps, "b")
    async with ask.following(maps, resourceVersion=seen, labelSelector="mine") as watch:
        await watch.until(1)
        await make(ask, maps, "c")
        await watch.until(2)
    assert watch.story == [("ADDED", "b"), ("ADDED", "c")]


async def test_a_watch_without_version_begins_with_what_is_there(ask: RawRequests, maps: str) -> None:
    await make(ask, maps, "a", "b")
    async with ask.following(maps, labelSelector="mine") as watch:
        await watch.until(2)
    assert sorted(watch.story) == [("ADDED", "a"), ("ADDED", "b")]


async def test_objects_come_into_and_go_out_of_view(ask: RawRequests, maps: str) -> None:
    start = (await ask("GET", maps)).meta["resourceVersion"]
    async with ask.following(maps, resourceVersion=start, labelSelector="x=1") as watch:
        await make(ask, maps, "a", x="0")
        for label in ("1", "2", "1"):
            await ask("PATCH", f"{maps}/a", {"metadata": {"labels": {"x": label}}}, MERGE_PATCH)
        await ask("DELETE", f"{maps}/a")
        await watch.until(4)
    assert watch.story == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a"), ("DELETED", "a")]
    labels = [event["object"]["metadata"]["labels"]["x"] for event in watch.events]
    assert labels == ["1", "1", "1", "1"]


async def test_bookmarks_come_before_a_watch_ends(ask: RawRequests, maps: str) -> None:
    await make(ask, maps, "a")
    start = (await ask("GET", maps)).meta["resourceVersion"]
    for attempt in range(3):  # a real server sends them by a timer of its own and may miss the end of one watch
        unseen = {"fieldSelector": "metadata.name=b", "allowWatchBookmarks": "true", "timeoutSeconds": "5"}
        async with ask.following(maps, resourceVersion=start, **unseen) as watch:
            # A real server repeats no version to a watch: something must have happened since it began.
            changed = await ask("PATCH", f"{maps}/a", {"data": {"x": str(attempt)}}, MERGE_PATCH)
            assert watch.reader is not None
            await asyncio.wait([watch.reader], timeout=20)
        if watch.events:
            break
    assert {event["type"] for event in watch.events} == {"BOOKMARK"}
    last = watch.events[-1]["object"]
    assert int(last["metadata"]["resourceVersion"]) >= int(changed.meta["resourceVersion"])
    assert last["kind"] == "ConfigMap"


async def test_initial_events_end_with_a_marked_bookmark(ask: RawRequests, maps: str) -> None:
    await make(ask, maps, "a")
    async with ask.following(
        maps,
        labelSelector="mine",
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    ) as watch:
        await watch.until(2)
    assert [event["type"] for event in watch.events] == ["ADDED", "BOOKMARK"]
    annotations = watch.events[1]["object"]["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}


async def test_a_watch_ends_when_it_was_told_to(ask: RawRequests, maps: str) -> None:
    async with asyncio.timeout(20):
        assert await ask.watched(maps, labelSelector="nothing=at-all", timeoutSeconds="1") == []


async def test_tables_and_metadata_are_served_on_request(ask: RawRequests, maps: str) -> None:
    await make(ask, maps, "a")
    table = (await ask("GET", maps, accept=TABLE, labelSelector="mine")).body
    assert table["kind"] == "Table"
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert [row["cells"][:2] for row in table["rows"]] == [["a", 1]]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    meta = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    found = (await ask("GET", f"{maps}/a", accept=meta)).body
    assert (found["kind"], "data" in found) == ("PartialObjectMetadata", False)
    assert (await ask("GET", maps, accept="text/html")).code == 406
