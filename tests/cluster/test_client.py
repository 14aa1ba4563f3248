"""The client against an API on loopback that can misbehave."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import pytest
from aiohttp import web

from apportion.apis.kinds import LEASES, NODES, PODS
from apportion.apis.meta import Bare
from apportion.cluster import errors
from apportion.cluster.client import Client, PatchType
from apportion.cluster.transport import HttpTransport
from tests.cluster.scripted_api import Fault, ScriptedApi, serving, status_response

ALL_PODS = "/api/v1/namespaces/default/pods"


async def test_an_object_goes_round(api: ScriptedApi, client: Client) -> None:
    made = await client.create(PODS, {"metadata": {"name": "a", "namespace": "default"}, "spec": {"x": 1}})
    assert made["metadata"]["uid"]
    assert api.bodies[-1]["kind"] == "Pod"
    got = await client.get(PODS, "a", namespace="default", into=Bare)
    assert got.metadata.name == "a"
    await client.delete(PODS, "a", namespace="default", uid=got.metadata.uid, grace=0, propagation="Background")
    assert api.bodies[-1] == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": got.metadata.uid},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }
    with pytest.raises(errors.NotFound):
        await client.get(PODS, "a", namespace="default")


async def test_lists_follow_their_pages(api: ScriptedApi, client: Client) -> None:
    for number in range(25):
        await api.put(ALL_PODS, f"p{number:02}")
    listing = await client.list(PODS, namespace="default", limit=10, into=Bare)
    assert [item.metadata.name for item in listing.items] == [f"p{number:02}" for number in range(25)]
    assert listing.resource_version == "25"
    assert len(api.requests) == 3


async def test_a_page_token_that_expires_starts_the_list_again(api: ScriptedApi, client: Client) -> None:
    for number in range(4):
        await api.put(ALL_PODS, f"p{number}")

    async def expired(_: web.Request) -> web.Response:
        return status_response(410, reason="Expired")

    api.faults.append(Fault(lambda request: bool(request.query.get("continue")), expired))
    listing = await client.list(PODS, namespace="default", limit=2)
    assert [item["metadata"]["name"] for item in listing.items] == ["p0", "p1", "p2", "p3"]
    assert listing.items[0]["kind"] == "Pod"


async def test_an_item_that_cannot_be_read_does_not_spoil_the_list(api: ScriptedApi, client: Client) -> None:
    await api.put(ALL_PODS, "good")
    bad = await api.put(ALL_PODS, "bad")
    bad["metadata"]["labels"] = {"a": 1}
    listing = await client.list(PODS, namespace="default", into=Bare)
    assert [item.metadata.name for item in listing.items] == ["good"]


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerError),
        (504, "Timeout", errors.Timeout),
    ],
)
async def test_a_status_becomes_its_exception(
    api: ScriptedApi, client: Client, code: int, reason: str, kind: type[errors.ApiError]
) -> None:
    api.fail("GET", code, reason=reason, message="because", details={"name": "a"})
    with pytest.raises(kind) as caught:
        await client.get(PODS, "a", namespace="default")
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.reason, caught.value.message) == (code, reason, "because")
    assert caught.value.details["name"] == "a"


async def test_an_error_that_is_no_status_keeps_its_text(api: ScriptedApi, client: Client) -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(status=502, text="<html>bad gateway</html>")

    api.faults.append(Fault(lambda _: True, page))
    with pytest.raises(errors.ServerError, match="bad gateway"):
        await client.get(PODS, "a", namespace="default")


@pytest.mark.parametrize("code", [429, 503])
async def test_retry_after_is_waited_out(api: ScriptedApi, client: Client, code: int) -> None:
    await api.put(ALL_PODS, "a")
    api.fail("GET", code, times=2, headers={"Retry-After": "0.2"})
    begun = time.monotonic()
    await client.get(PODS, "a", namespace="default")
    assert time.monotonic() - begun >= 0.4
    assert len(api.requests) == 3


async def test_a_busy_server_without_a_time_is_reported_at_once(api: ScriptedApi, client: Client) -> None:
    api.fail("POST", 503, times=9)
    with pytest.raises(errors.ServerError):
        await client.create(PODS, {"metadata": {"name": "a"}}, namespace="default")
    assert len(api.requests) == 1


async def test_an_eviction_that_a_budget_forbids_is_not_repeated(api: ScriptedApi, client: Client) -> None:
    api.fail("POST", 429, times=9, headers={"Retry-After": "10"}, message="would violate the budget")
    with pytest.raises(errors.TooManyRequests, match="budget") as caught:
        await client.evict("default", "a", uid="u1")
    assert caught.value.retry_after == 10
    assert len(api.requests) == 1
    assert api.bodies[-1]["deleteOptions"]["preconditions"] == {"uid": "u1"}


async def test_no_answer_is_unreachable(api: ScriptedApi, client: Client) -> None:
    api.break_connection("POST")
    with pytest.raises(errors.Unreachable):
        await client.create(PODS, {"metadata": {"name": "a"}}, namespace="default")
    async with Client(HttpTransport("http://127.0.0.1:1")) as nobody:
        with pytest.raises(errors.Unreachable, match="is not reachable"):
            await nobody.get(NODES, "n")


async def test_a_hanging_server_is_unreachable(api: ScriptedApi) -> None:
    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    async with serving(api), Client(HttpTransport(api.url), timeout=0.3) as client:
        api.faults.append(Fault(lambda _: True, hang))
        with pytest.raises(errors.Unreachable):
            await client.get(NODES, "n")


async def test_a_binding_names_uid_and_node(api: ScriptedApi, client: Client) -> None:
    async def ok(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    api.faults.append(Fault(lambda request: request.path.endswith("/binding"), ok))
    await client.bind("default", "a", "u1", "n1")
    assert api.bodies[-1]["metadata"] == {"name": "a", "namespace": "default", "uid": "u1"}
    assert api.bodies[-1]["target"]["name"] == "n1"


@pytest.mark.parametrize("how", list(PatchType))
async def test_each_kind_of_patch_has_its_media_type(api: ScriptedApi, client: Client, how: PatchType) -> None:
    await api.put(ALL_PODS, "a")
    await client.patch(PODS, "a", {"spec": {}}, namespace="default", how=how, field_manager="me", force=True)
    assert api.requests[-1].headers["content-type"] == how.value
    assert dict(api.requests[-1].query) == {"fieldManager": "me", "force": "true"}


async def test_a_watch_gives_events_and_bookmarks_in_order(api: ScriptedApi, client: Client) -> None:
    await api.put(ALL_PODS, "a")
    async with aclosing(client.watch(PODS, namespace="default", resource_version="0", into=Bare)) as watch:
        first = await anext(watch)
        assert first.object is not None
        assert (first.type, first.object.metadata.name, first.resource_version) == ("ADDED", "a", "1")
        await api.put(ALL_PODS, "a", spec={})
        await api.remove(ALL_PODS, "a")
        assert [(await anext(watch)).type for _ in range(2)] == ["MODIFIED", "DELETED"]
    assert api.requests[-1].query["allowWatchBookmarks"] == "true"


async def test_a_watch_from_too_far_back_is_gone(api: ScriptedApi, client: Client) -> None:
    await api.put(ALL_PODS, "a")
    await api.forget_history()
    with pytest.raises(errors.Gone):
        await anext(client.watch(PODS, namespace="default", resource_version="0"))
    api.fail("GET", 410, watch=True, reason="Expired")
    with pytest.raises(errors.Gone):
        await anext(client.watch(PODS, namespace="default", resource_version="0"))


async def test_events_split_anywhere_on_the_wire_arrive_whole(api: ScriptedApi, client: Client) -> None:
    line = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"7"}}}\n'

    async def slowly(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for position in range(0, len(line) * 2, 9):
            await response.write((line * 2)[position : position + 9])
            await asyncio.sleep(0)
        await response.write(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}\n{"type":"ADD')
        return response

    api.faults.append(Fault(lambda _: True, slowly))
    events = [event async for event in client.watch(PODS, namespace="default")]
    assert [(event.type, event.resource_version) for event in events] == [
        ("ADDED", "7"),
        ("ADDED", "7"),
        ("BOOKMARK", "9"),
    ]


async def test_an_empty_name_never_addresses_the_whole_collection(client: Client) -> None:
    with pytest.raises(ValueError, match="name"):
        await client.delete(LEASES, "", namespace="default")
