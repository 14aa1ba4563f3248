"""JSON patches of members that are not there, and patches that are none: laxer and stricter than the RFC."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.raw_requests import JSON_PATCH, RawRequests

REFUSED = "the server rejected our request due to an error in our request"
DECODING = "error decoding patch: json: cannot unmarshal"
LAST = "/metadata/managedFields/-1/operation"


@pytest.mark.parametrize(
    ("operations", "data"),
    [
        ([{"op": "replace", "path": "/data/absent", "value": "1"}], {"a": "1", "absent": "1"}),
        ([{"op": "copy", "from": "/data/absent", "path": "/data/b"}], {"a": "1", "b": ""}),
        ([{"op": "move", "from": "/data/a", "path": "/data/b"}], {"b": "1"}),
        ([{"op": "test", "path": "/data/absent", "value": None}], {"a": "1"}),
        ([{"op": "add", "path": "/data/b"}], {"a": "1", "b": ""}),
        ([{"op": "replace", "path": "/data/a"}], {"a": ""}),
        ([{"op": "add", "path": "/data/-", "value": "x"}], {"a": "1", "-": "x"}),
        ([{"op": "add", "path": "data/a", "value": "x"}], {"a": "1"}),
        ([{"op": "test", "path": LAST, "value": "Update"}, {"op": "remove", "path": "/data/a"}], None),
        ([{"op": "replace", "path": "/metadata/labels", "value": None}], {"a": "1"}),
        ([], {"a": "1"}),
        (None, {"a": "1"}),
    ],
)
async def test_a_patch_may_reach_for_what_is_not_there(
    ask: RawRequests, namespace: str, operations: Any, data: dict[str, str] | None
) -> None:
    path = await made(ask, namespace)
    answer = await ask("PATCH", path, b"null" if operations is None else operations, JSON_PATCH)
    assert (answer.code, answer.body.get("data")) == (200, data)


@pytest.mark.parametrize(
    ("operations", "code", "message"),
    [
        ([{"op": "remove", "path": "/data/absent"}], 422, REFUSED),
        ([{"op": "move", "from": "/data/absent", "path": "/data/b"}], 422, REFUSED),
        ([{"op": "replace", "path": "/binaryData/a", "value": "1"}], 422, REFUSED),
        ([{"op": "copy", "from": "/binaryData/a", "path": "/data/b"}], 422, REFUSED),
        ([{"op": "test", "path": "/binaryData/a", "value": None}], 422, REFUSED),
        ([{"op": "test", "path": "/data/a", "value": "2"}], 422, REFUSED),
        ([{"op": "add", "path": "/binaryData/a", "value": "1"}], 422, REFUSED),
        ([{"op": "add", "path": "/metadata/finalizers/0", "value": "a.b/c"}], 422, REFUSED),
        ([{"op": "remove", "path": "/metadata/managedFields/7"}], 422, REFUSED),
        ([{"op": "add", "path": "", "value": {}}], 422, REFUSED),
        ([{"op": "remove", "path": ""}], 422, REFUSED),
        ([{"op": "move", "from": "/data", "path": "/data/b"}], 422, REFUSED),
        ([{"op": "nonsense", "path": "/data/a"}], 422, REFUSED),
        ([{"path": "/data/a", "value": "x"}], 422, REFUSED),
        ([None], 422, REFUSED),
        ({"op": "add"}, 400, f"{DECODING} object into Go value of type []handlers.jsonPatchOp"),
        ("text", 400, f"{DECODING} string into Go value of type []handlers.jsonPatchOp"),
        ([1], 400, f"{DECODING} number into Go value of type handlers.jsonPatchOp"),
        ([[]], 400, f"{DECODING} array into Go value of type handlers.jsonPatchOp"),
        ([{"op": 1}], 400, f"{DECODING} number into Go struct field jsonPatchOp.op of type string"),
        ([{"op": "add", "path": 1}], 400, f"{DECODING} number into Go struct field jsonPatchOp.path of type string"),
    ],
)
async def test_what_cannot_be_applied_is_refused_with_the_real_words(
    ask: RawRequests, namespace: str, operations: Any, code: int, message: str
) -> None:
    path = await made(ask, namespace)
    answer = await ask("PATCH", path, operations, JSON_PATCH)
    assert (answer.code, answer.message) == (code, message)
    assert (await ask("GET", path)).body["data"] == {"a": "1"}


async def made(ask: RawRequests, namespace: str) -> str:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    assert (await ask("POST", maps, {"metadata": {"name": "patched"}, "data": {"a": "1"}})).code == 201
    return f"{maps}/patched"
