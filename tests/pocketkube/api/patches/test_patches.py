"""JSON patch against the jsonpatch library, merge patch against the RFC's table."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketkube.api.patches import json_patch, merge_patch
from pocketkube.api.patches.errors import PatchError

keys = st.sampled_from(["a", "b", "c", "x/y", "m~n", "0"])
leaves = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "s", "t"]))
documents = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=10
)
objects = st.dictionaries(keys, documents, max_size=4)


@given(objects, objects)
def test_a_patch_made_by_another_library_turns_one_document_into_the_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    patch = list(jsonpatch.make_patch(before, after))
    original = copy.deepcopy(before)
    assert json_patch.equal(json_patch.apply(before, patch), after)
    assert before == original


def pointers(document: Any) -> st.SearchStrategy[str]:
    """Mostly places of the document, sometimes nonsense."""
    found = [""]

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                here = path + "/" + key.replace("~", "~0").replace("/", "~1")
                found.append(here)
                walk(inner, here)
            found.append(path + "/new")
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                found.append(f"{path}/{index}")
                walk(inner, f"{path}/{index}")
            found.extend([f"{path}/-", f"{path}/{len(value)}", f"{path}/{len(value) + 1}"])

    walk(document, "")
    return st.sampled_from(found)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, list[dict[str, Any]]]:
    document = draw(objects)
    operations = []
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]))
        operation: dict[str, Any] = {"op": name, "path": draw(pointers(document))}
        if name in ("add", "replace", "test"):
            operation["value"] = draw(documents)
        if name in ("move", "copy"):
            operation["from"] = draw(pointers(document))
        operations.append(operation)
    return document, operations


@given(cases())
def test_any_patch_does_what_the_jsonpatch_library_does(case: tuple[Any, list[dict[str, Any]]]) -> None:
    document, operations = case
    if any(operation["path"] == "" or operation.get("from") == "" for operation in operations):
        return  # libraries differ about the whole document; ours is tested below
    if any(operation["op"] in ("move", "copy") and operation["from"].endswith("-") for operation in operations):
        return  # "-" names the place after the last item: nothing can come from there
    try:
        expected = jsonpatch.apply_patch(document, operations)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError):
        expected = None
    try:
        ours = json_patch.apply(document, operations)
    except PatchError:
        ours = None
    if expected is not None and ours is not None:
        assert ours == expected
    elif expected is not None:
        pytest.fail(f"refused what the library does: {document} {operations}")


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "nonsense", "path": "/a"},
        {"op": "add", "path": "", "value": {}},
        {"op": "remove", "path": ""},
        {"op": "add", "value": 1},
        {"op": "remove", "path": "/missing"},
        {"op": "replace", "path": "/missing/member", "value": 1},
        {"op": "add", "path": "/list/9", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
        {"op": "add", "path": "/a/b", "value": 1},
        {"op": "move", "from": "/map", "path": "/map/inner"},
        {"op": "copy", "path": "/x"},
        {"op": "test", "path": "/a", "value": True},
        {"op": "test", "path": "/a", "value": 2},
        "no operation",
    ],
)
def test_a_patch_that_does_not_apply_is_refused(operation: Any) -> None:
    with pytest.raises(PatchError):
        json_patch.apply({"a": 1, "list": [1], "map": {}}, [operation])


def test_the_whole_document_can_be_tested_and_replaced() -> None:
    assert json_patch.apply({"a": 1}, [{"op": "test", "path": "", "value": {"a": 1}}]) == {"a": 1}
    assert json_patch.apply({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}]) == {"b": 2}


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_follows_the_rfc(target: Any, patch: Any, result: Any) -> None:
    assert merge_patch.apply(target, patch) == result


@given(objects, objects)
def test_a_merge_patch_applied_twice_changes_nothing_more(target: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge_patch.apply(target, patch)
    assert merge_patch.apply(once, patch) == once
