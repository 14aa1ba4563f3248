"""Merge, JSON, strategic and apply patches: results, ownership, conflicts, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.raw_requests import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    RawRequests,
    config_map,
    deployment,
)

JSON = dict[str, Any]


def owners(obj: JSON) -> dict[str, JSON]:
    return {
        f"{entry['manager']} {entry['operation']} {entry.get('subresource', '')}".strip(): entry["fieldsV1"]
        for entry in obj["metadata"]["managedFields"]
    }


async def test_merge_patch_merges_replaces_and_removes(ask: RawRequests, maps: str) -> None:
    await ask("POST", maps, config_map("a", {"a": "1", "b": "2"}, labels={"x": "y"}))
    answer = await ask("PATCH", f"{maps}/a", {"data": {"b": None, "c": "3"}, "metadata": {"labels": None}}, MERGE_PATCH)
    assert (answer.code, answer.body["data"]) == (200, {"a": "1", "c": "3"})
    assert "labels" not in answer.meta


async def test_json_patch_applies_all_or_nothing(ask: RawRequests, maps: str) -> None:
    await ask("POST", maps, config_map("a"))
    good = [{"op": "test", "path": "/data/a", "value": "1"}, {"op": "add", "path": "/data/b", "value": "2"}]
    assert (await ask("PATCH", f"{maps}/a", good, JSON_PATCH)).body["data"] == {"a": "1", "b": "2"}
    moved = [{"op": "move", "from": "/data/b", "path": "/data/c"}, {"op": "copy", "from": "/data/c", "path": "/data/d"}]
    assert (await ask("PATCH", f"{maps}/a", moved, JSON_PATCH)).body["data"] == {"a": "1", "c": "2", "d": "2"}
    bad = [{"op": "remove", "path": "/data/a"}, {"op": "test", "path": "/data/c", "value": "9"}]
    refused = await ask("PATCH", f"{maps}/a", bad, JSON_PATCH)
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.message == "the server rejected our request due to an error in our request"
    assert "a" in (await ask("GET", f"{maps}/a")).body["data"]


@pytest.mark.parametrize(
    ("patch", "media", "code"),
    [
        ([{"op": "remove", "path": "/data/missing"}], JSON_PATCH, 422),
        ([{"op": "nonsense", "path": "/data/a"}], JSON_PATCH, 422),
        ([{"op": "add", "path": "/data/x/y", "value": "1"}], JSON_PATCH, 422),
        ({"op": "add"}, JSON_PATCH, 400),
        (b"{", JSON_PATCH, 400),
        (b"{", MERGE_PATCH, 400),
        ([], MERGE_PATCH, 400),
        ({"data": {"a": 5}}, MERGE_PATCH, 422),
        ({"metadata": {"name": "b"}}, MERGE_PATCH, 400),
        ({"metadata": {"namespace": "b"}}, MERGE_PATCH, 400),
        (b"{", STRATEGIC_PATCH, 400),
        ({"data": {}}, "application/json", 415),
        (b"a: [", APPLY_PATCH, 400),
        ({"data": {}}, APPLY_PATCH, 400),
    ],
)
async def test_bad_patches_are_refused(ask: RawRequests, maps: str, patch: Any, media: str, code: int) -> None:
    await ask("POST", maps, config_map("a"))
    answer = await ask("PATCH", f"{maps}/a", patch, media, fieldManager="m")
    assert (answer.code, answer.body["kind"]) == (code, "Status")
    assert (await ask("GET", f"{maps}/a")).body["data"] == {"a": "1"}


def template(**spec: Any) -> JSON:
    return {"spec": {"template": {"spec": spec}}}


def containers(obj: JSON) -> list[JSON]:
    found: list[JSON] = obj["spec"]["template"]["spec"]["containers"]
    return found


async def test_strategic_patch_knows_keys_and_directives(ask: RawRequests, deployments: str) -> None:
    path = f"{deployments}/d"
    await ask("POST", deployments, deployment("d"))
    changed = await ask("PATCH", path, template(containers=[{"name": "b", "image": "9"}]), STRATEGIC_PATCH)
    assert [(each["name"], each["image"]) for each in containers(changed.body)] == [("a", "1"), ("b", "9")]
    env = [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]
    await ask("PATCH", path, template(containers=[{"name": "a", "env": env}]), STRATEGIC_PATCH)
    fewer = [{"name": "X", "$patch": "delete"}, {"name": "Z", "value": "3"}]
    changed = await ask("PATCH", path, template(containers=[{"name": "a", "env": fewer}]), STRATEGIC_PATCH)
    a = next(each for each in containers(changed.body) if each["name"] == "a")
    assert sorted(each["name"] for each in a["env"]) == ["Y", "Z"]
    gone = await ask("PATCH", path, template(containers=[{"name": "b", "$patch": "delete"}]), STRATEGIC_PATCH)
    assert [each["name"] for each in containers(gone.body)] == ["a"]
    recreate = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert (await ask("PATCH", path, recreate, STRATEGIC_PATCH)).body["spec"]["strategy"] == {"type": "Recreate"}
    order = {"$setElementOrder/containers": [{"name": "n"}, {"name": "a"}], "containers": [{"name": "n", "image": "q"}]}
    ordered = await ask("PATCH", path, template(**order), STRATEGIC_PATCH)
    assert [each["name"] for each in containers(ordered.body)] == ["n", "a"]
    lists = template(tolerations=[{"key": "a", "operator": "Exists"}], nodeSelector={"x": "y"})
    await ask("PATCH", path, lists, STRATEGIC_PATCH)
    again = template(tolerations=[{"key": "b", "operator": "Exists"}], nodeSelector={"z": "y"})
    spec = (await ask("PATCH", path, again, STRATEGIC_PATCH)).body["spec"]["template"]["spec"]
    assert [each["key"] for each in spec["tolerations"]] == ["b"]
    assert spec["nodeSelector"] == {"x": "y", "z": "y"}


async def test_strategic_patch_of_primitive_lists(ask: RawRequests, maps: str) -> None:
    await ask("POST", maps, config_map("a", finalizers=["x.y/a"]))
    more = await ask("PATCH", f"{maps}/a", {"metadata": {"finalizers": ["x.y/b"]}}, STRATEGIC_PATCH)
    assert sorted(more.meta["finalizers"]) == ["x.y/a", "x.y/b"]
    less = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.y/a"]}}
    assert (await ask("PATCH", f"{maps}/a", less, STRATEGIC_PATCH)).meta["finalizers"] == ["x.y/b"]
    await ask("PATCH", f"{maps}/a", {"metadata": {"finalizers": None}}, STRATEGIC_PATCH)


@pytest.mark.parametrize(
    "patch",
    [
        template(containers=[{"image": "x"}]),
        template(**{"$patch": "nonsense"}),
        {"spec": {"strategy": {"$retainKeys": 5}}},
    ],
)
async def test_bad_strategic_patches_change_nothing(ask: RawRequests, deployments: str, patch: JSON) -> None:
    await ask("POST", deployments, deployment("d"))
    answer = await ask("PATCH", f"{deployments}/d", patch, STRATEGIC_PATCH)
    assert answer.code >= 400
    assert len(containers((await ask("GET", f"{deployments}/d")).body)) == 2


async def test_apply_makes_changes_and_removes(ask: RawRequests, maps: str) -> None:
    first = await ask("PATCH", f"{maps}/a", config_map("a", {"a": "1", "b": "2"}), APPLY_PATCH, fieldManager="one")
    assert first.code == 201
    assert owners(first.body) == {"one Apply": {"f:data": {"f:a": {}, "f:b": {}}}}
    second = await ask("PATCH", f"{maps}/a", config_map("a", {"a": "1"}), APPLY_PATCH, fieldManager="one")
    assert (second.code, second.body["data"]) == (200, {"a": "1"})
    same = await ask("PATCH", f"{maps}/a", config_map("a", {"a": "1"}), APPLY_PATCH, fieldManager="one")
    assert same.meta["resourceVersion"] == second.meta["resourceVersion"]


async def test_apply_conflicts_name_manager_and_field(ask: RawRequests, maps: str) -> None:
    await ask("PATCH", f"{maps}/a", config_map("a", {"a": "1"}), APPLY_PATCH, fieldManager="one")
    await ask("PATCH", f"{maps}/a", {"data": {"b": "1"}}, MERGE_PATCH, fieldManager="editor")
    other = config_map("a", {"a": "2"})
    refused = await ask("PATCH", f"{maps}/a", other, APPLY_PATCH, fieldManager="two")
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    assert refused.causes == [("FieldManagerConflict", ".data.a")]
    both = await ask("PATCH", f"{maps}/a", config_map("a", {"a": "2", "b": "2"}), APPLY_PATCH, fieldManager="two")
    assert both.message == (
        'Apply failed with 2 conflicts: conflicts with "editor" using v1:\n- .data.b\nconflicts with "one":\n- .data.a'
    )
    forced = await ask("PATCH", f"{maps}/a", other, APPLY_PATCH, fieldManager="two", force="true")
    assert forced.body["data"] == {"a": "2", "b": "1"}
    assert owners(forced.body) == {
        "two Apply": {"f:data": {"f:a": {}}},
        "editor Update": {"f:data": {"f:b": {}}},
    }


async def test_shared_fields_stay_until_their_last_owner_leaves(ask: RawRequests, maps: str) -> None:
    for manager in ("one", "two"):
        await ask("PATCH", f"{maps}/a", config_map("a", {"a": "1"}), APPLY_PATCH, fieldManager=manager)
    empty = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    kept = await ask("PATCH", f"{maps}/a", empty, APPLY_PATCH, fieldManager="one")
    assert kept.body["data"] == {"a": "1"}
    last = await ask("PATCH", f"{maps}/a", empty, APPLY_PATCH, fieldManager="two")
    assert not last.body.get("data")


async def test_apply_of_lists_with_keys(ask: RawRequests, deployments: str) -> None:
    path = f"{deployments}/d"
    assert (await ask("PATCH", path, deployment("d"), APPLY_PATCH, fieldManager="one")).code == 201
    extra = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}} | template(
        containers=[{"name": "x", "image": "x"}]
    )
    added = await ask("PATCH", path, extra, APPLY_PATCH, fieldManager="two")
    assert [each["name"] for each in containers(added.body)] == ["a", "b", "x"]
    less = deployment("d")
    del less["spec"]["template"]["spec"]["containers"][0]
    fewer = await ask("PATCH", path, less, APPLY_PATCH, fieldManager="one")
    assert [each["name"] for each in containers(fewer.body)] == ["b", "x"]
    await ask("PATCH", f"{path}/scale", {"spec": {"replicas": 0}}, MERGE_PATCH, fieldManager="scaler")


async def test_the_ownership_of_a_plain_create(ask: RawRequests, deployments: str) -> None:
    made = await ask("POST", deployments, deployment("d"), fieldManager="maker")
    spec = owners(made.body)["maker Update"]["f:spec"]
    assert spec["f:strategy"] == {
        "f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}},
        "f:type": {},
    }
    assert spec["f:template"]["f:spec"]["f:containers"]['k:{"name":"a"}'] == {
        ".": {},
        "f:image": {},
        "f:imagePullPolicy": {},
        "f:name": {},
        "f:resources": {},
        "f:terminationMessagePath": {},
        "f:terminationMessagePolicy": {},
    }
    assert spec["f:selector"] == {}
    assert spec["f:template"]["f:metadata"] == {"f:labels": {".": {}, "f:app": {}}}


async def test_apply_needs_a_manager(ask: RawRequests, maps: str) -> None:
    answer = await ask("PATCH", f"{maps}/a", config_map("a"), APPLY_PATCH)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.causes == [("FieldValueRequired", "fieldManager")]


async def test_apply_refuses_fields_that_do_not_exist_and_duplicate_items(ask: RawRequests, deployments: str) -> None:
    unknown = deployment("d") | {"nonsense": 1}
    answer = await ask("PATCH", f"{deployments}/d", unknown, APPLY_PATCH, fieldManager="m")
    assert answer.code >= 400
    assert ".nonsense: field not declared in schema" in answer.message
    twins = deployment("d")
    twins["spec"]["template"]["spec"]["containers"][1]["name"] = "a"
    answer = await ask("PATCH", f"{deployments}/d", twins, APPLY_PATCH, fieldManager="m")
    assert answer.code >= 400
    assert 'duplicate entries for key [name="a"]' in answer.message


async def test_managed_fields_can_be_reset(ask: RawRequests, maps: str) -> None:
    await ask("POST", maps, config_map("a"))
    answer = await ask("PATCH", f"{maps}/a", {"metadata": {"managedFields": [{}]}}, MERGE_PATCH)
    assert not answer.meta.get("managedFields")
