"""Lists: pages of one state, selectors, forms."""

from __future__ import annotations

from typing import Any

import pytest

from pocketkube.api.server import ApiServer
from tests.pocketkube.api.direct_requests import MERGE_PATCH, DirectRequests, config_map, pod

MAPS = "/api/v1/namespaces/default/configmaps"


async def make(ask: DirectRequests, *names: str, **labels: str) -> None:
    for name in names:
        answer = await ask("POST", MAPS, config_map(name, labels=labels))
        assert answer.code == 201


def names(listing: dict[str, Any]) -> list[str]:
    return [each["metadata"]["name"] for each in listing["items"]]


async def test_pages_together_are_the_state_of_the_first_one(ask: DirectRequests) -> None:
    await make(ask, "a", "b", "c", "d", "e")
    first = (await ask("GET", f"{MAPS}?limit=2")).body
    assert (names(first), first["metadata"]["remainingItemCount"]) == (["a", "b"], 3)
    await ask("DELETE", f"{MAPS}/d")
    await make(ask, "b2")
    await ask("PATCH", f"{MAPS}/c", {"data": {"a": "changed"}}, media=MERGE_PATCH)
    second = (await ask("GET", f"{MAPS}?limit=2&continue={first['metadata']['continue']}")).body
    assert names(second) == ["c", "d"]
    assert second["items"][0]["data"]["a"] == "1"
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    last = (await ask("GET", f"{MAPS}?limit=2&continue={second['metadata']['continue']}")).body
    assert names(last) == ["e"]
    assert "continue" not in last["metadata"]


async def test_an_expired_page_offers_to_go_on_inconsistently(ask: DirectRequests, server: ApiServer) -> None:
    await make(ask, "a", "b", "c")
    first = (await ask("GET", f"{MAPS}?limit=1")).body
    await ask("DELETE", f"{MAPS}/b")
    server.store.compact()
    expired = await ask("GET", f"{MAPS}?limit=1&continue={first['metadata']['continue']}")
    assert (expired.code, expired.reason) == (410, "Expired")
    rest = await ask("GET", f"{MAPS}?continue={expired.body['metadata']['continue']}")
    assert names(rest.body) == ["c"]


@pytest.mark.parametrize("token", ["zzz", "e30", "%", "eyJ2IjoieCJ9", ""])
async def test_a_bad_page_token_is_a_bad_request(ask: DirectRequests, token: str) -> None:
    answer = await ask("GET", f"{MAPS}?limit=1&continue={token}")
    assert answer.code == (400 if token else 200)


async def test_a_list_can_be_had_as_it_was(ask: DirectRequests) -> None:
    await make(ask, "a")
    then = (await ask("GET", MAPS)).body["metadata"]["resourceVersion"]
    await make(ask, "b")
    exact = (await ask("GET", f"{MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")).body
    assert (names(exact), exact["metadata"]["resourceVersion"]) == (["a"], then)
    newest = (await ask("GET", f"{MAPS}?resourceVersion={then}&resourceVersionMatch=NotOlderThan")).body
    assert names(newest) == ["a", "b"]


async def test_a_version_of_the_future_is_a_timeout_that_says_so(ask: DirectRequests) -> None:
    for path in (MAPS, f"{MAPS}/a"):
        await make(ask, "a") if path == MAPS else None
        answer = await ask("GET", f"{path}?resourceVersion=99999999")
        assert (answer.code, answer.reason) == (504, "Timeout")
        assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    "query",
    [
        "resourceVersion=abc",
        "limit=x",
        "labelSelector=a b",
        "fieldSelector=foo",
        "fieldSelector=data.x=y",
        "timeoutSeconds=x&watch=1",
    ],
)
async def test_bad_options_are_bad_requests(ask: DirectRequests, query: str) -> None:
    assert (await ask("GET", f"{MAPS}?{query}")).code == 400


@pytest.mark.parametrize(
    "query",
    [
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=Exact&resourceVersion=0",
        "resourceVersionMatch=Nonsense&resourceVersion=1",
        "watch=1&sendInitialEvents=true",
        "watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1",
    ],
)
async def test_contradicting_options_are_invalid(ask: DirectRequests, query: str) -> None:
    answer = await ask("GET", f"{MAPS}?{query}")
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_selectors_choose_by_labels_and_fields(ask: DirectRequests) -> None:
    pods = "/api/v1/namespaces/default/pods"
    await ask("POST", pods, pod("a", node="n1", labels={"x": "1"}))
    await ask("POST", pods, pod("b", labels={"x": "2"}))
    for query, expected in (
        ("labelSelector=x", ["a", "b"]),
        ("labelSelector=x in (2)", ["b"]),
        ("fieldSelector=spec.nodeName=n1", ["a"]),
        ("fieldSelector=spec.nodeName=", ["b"]),
        ("fieldSelector=status.phase=Pending,metadata.name!=a", ["b"]),
        ("fieldSelector=metadata.name=a", ["a"]),
        ("fieldSelector=metadata.name=a&labelSelector=x=2", []),
    ):
        assert names((await ask("GET", f"{pods}?{query}")).body) == expected, query


async def test_metadata_alone_and_tables_are_served_on_request(ask: DirectRequests) -> None:
    await make(ask, "a")
    one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    many = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    meta = (await ask("GET", f"{MAPS}/a", accept=one)).body
    assert (meta["kind"], "data" in meta) == ("PartialObjectMetadata", False)
    assert (await ask("GET", MAPS, accept=many)).body["kind"] == "PartialObjectMetadataList"
    rows = (await ask("GET", MAPS, accept=table)).body
    assert (rows["kind"], rows["rows"][0]["cells"][0]) == ("Table", "a")
    assert (await ask("GET", MAPS, accept="text/html")).code == 406
    assert "kind: ConfigMapList" in (await ask("GET", MAPS, accept="application/yaml")).body
