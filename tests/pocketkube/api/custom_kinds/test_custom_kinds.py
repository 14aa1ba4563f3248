"""Custom kinds: definitions, defaulting, pruning, validation, subresources, versions, the end."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from apportion.apis.custom_resources.crds import crds
from pocketkube.api.server import ApiServer
from pocketkube.api.storage.store import Bucket
from tests.pocketkube.api.direct_requests import APPLY_PATCH, MERGE_PATCH, STRATEGIC_PATCH, DirectRequests
from tests.pocketkube.api.waiting import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TABS = "/apis/example.io/v1/namespaces/default/tabs"

SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "string", "enum": ["s", "m"]},
        "replicas": {"type": "integer", "minimum": 1, "maximum": 5, "default": 2},
        "name": {"type": "string", "pattern": "^a+$", "maxLength": 5},
        "set": {"type": "array", "maxItems": 2, "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {
                "type": "object",
                "required": ["k"],
                "properties": {"k": {"type": "string"}, "v": {"type": "integer", "default": 7}},
            },
        },
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "numbers": {"type": "object", "additionalProperties": {"type": "integer"}},
        "either": {"x-kubernetes-int-or-string": True},
        "maybe": {"type": "string", "nullable": True},
        "when": {"type": "string", "format": "date-time"},
    },
}


def definition(**changes: Any) -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [{"name": "Size", "type": "string", "jsonPath": ".spec.size"}],
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "required": ["spec"],
                "properties": {
                    "spec": copy.deepcopy(SPEC),
                    "status": {
                        "type": "object",
                        "properties": {"state": {"type": "string"}, "replicas": {"type": "integer"}},
                    },
                },
            }
        },
    }
    spec = {
        "group": "example.io",
        "scope": "Namespaced",
        "names": {"plural": "tabs", "singular": "tab", "kind": "Tab", "shortNames": ["tb"]},
        "versions": [version],
    }
    return {"metadata": {"name": "tabs.example.io"}, "spec": {**spec, **changes}}


def tab(called: str = "t", /, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.io/v1", "kind": "Tab", "metadata": {"name": called}, "spec": {"size": "s", **spec}}


@pytest.fixture
async def tabs(ask: DirectRequests) -> DirectRequests:
    answer = await ask("POST", DEFINITIONS, definition())
    assert answer.code == 201, answer.body
    return ask


async def test_a_definition_is_established_and_served_at_once(tabs: DirectRequests) -> None:
    found = (await tabs("GET", f"{DEFINITIONS}/tabs.example.io")).body
    conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert found["status"]["storedVersions"] == ["v1"]
    assert found["status"]["acceptedNames"]["listKind"] == "TabList"
    discovered = (await tabs("GET", "/apis/example.io/v1")).body["resources"]
    assert {each["name"] for each in discovered} == {"tabs", "tabs/status", "tabs/scale"}
    assert (await tabs("GET", TABS)).body["kind"] == "TabList"


async def test_defaults_are_filled_and_unknown_fields_forgotten(tabs: DirectRequests) -> None:
    body = tab(unknown=1, any={"x": {"y": 1}}, items=[{"k": "a"}], replicas=None)
    made = (await tabs("POST", TABS, body)).body
    assert made["spec"] == {"size": "s", "replicas": 2, "any": {"x": {"y": 1}}, "items": [{"k": "a", "v": 7}]}
    assert made["metadata"]["generation"] == 1


async def test_unknown_fields_are_refused_when_strict(tabs: DirectRequests) -> None:
    answer = await tabs("POST", f"{TABS}?fieldValidation=Strict", {**tab(unknown=1), "extra": 2})
    assert answer.code == 400
    assert 'strict decoding error: unknown field "extra", unknown field "spec.unknown"' in answer.message


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"size": "xl"}, "spec.size", 'Unsupported value: "xl": supported values: "s", "m"'),
        ({"size": None}, "spec.size", "Required value"),
        ({"replicas": 0}, "spec.replicas", "spec.replicas in body should be greater than or equal to 1"),
        ({"replicas": 9}, "spec.replicas", "spec.replicas in body should be less than or equal to 5"),
        ({"replicas": "2"}, "spec.replicas", 'spec.replicas in body must be of type integer: "string"'),
        ({"replicas": 1.5}, "spec.replicas", 'spec.replicas in body must be of type integer: "number"'),
        ({"name": "b"}, "spec.name", "spec.name in body should match '^a+$'"),
        ({"name": "aaaaaaa"}, "spec.name", "Too long: may not be more than 5 bytes"),
        ({"set": ["a", "a"]}, "spec.set[1]", 'Duplicate value: "a"'),
        ({"set": ["a", "b", "c"]}, "spec.set", "Too many: 3: must have at most 2 items"),
        ({"items": [{"k": "a"}, {"k": "a"}]}, "spec.items[1]", 'Duplicate value: {"k":"a"}'),
        ({"items": [{"v": 1}]}, "spec.items[0].k", "Required value"),
        ({"numbers": {"a": "x"}}, "spec.numbers.a", "must be of type integer"),
        ({"either": {}}, "spec.either", "must be of type integer,string"),
        ({"when": "yesterday"}, "spec.when", 'must be of type date-time: "yesterday"'),
    ],
)
async def test_values_are_judged_by_the_schema(
    tabs: DirectRequests, spec: dict[str, Any], field: str, message: str
) -> None:
    answer = await tabs("POST", TABS, tab(**spec))
    assert (answer.code, answer.reason) == (422, "Invalid")
    causes = answer.body["details"]["causes"]
    assert any(cause["field"] == field and message in cause["message"] for cause in causes), causes


async def test_good_values_pass(tabs: DirectRequests) -> None:
    good = tab(either="5%", maybe=None, when="2026-01-01T00:00:00Z", numbers={"a": 1}, set=["a", "b"], name="aa")
    assert (await tabs("POST", TABS, good)).code == 201


async def test_an_update_does_not_judge_what_it_leaves_alone(tabs: DirectRequests) -> None:
    await tabs("POST", TABS, tab(replicas=5))
    stricter = (await tabs("GET", f"{DEFINITIONS}/tabs.example.io")).body
    stricter["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["replicas"][
        "maximum"
    ] = 3
    assert (await tabs("PUT", f"{DEFINITIONS}/tabs.example.io", stricter)).code == 200
    assert (await tabs("PATCH", f"{TABS}/t", {"spec": {"size": "m"}}, media=MERGE_PATCH)).code == 200
    assert (await tabs("PATCH", f"{TABS}/t", {"spec": {"replicas": 4}}, media=MERGE_PATCH)).code == 422


async def test_status_is_written_only_through_its_own_endpoint(tabs: DirectRequests) -> None:
    made = (await tabs("POST", TABS, {**tab(), "status": {"state": "ignored"}})).body
    assert "status" not in made
    patch = {"status": {"state": "up"}, "spec": {"size": "m"}, "metadata": {"labels": {"a": "b"}}}
    changed = (await tabs("PATCH", f"{TABS}/t/status", patch, media=MERGE_PATCH)).body
    assert (changed["status"], changed["spec"]["size"]) == ({"state": "up"}, "s")
    assert "labels" not in changed["metadata"]
    assert changed["metadata"]["generation"] == 1
    main = (
        await tabs("PATCH", f"{TABS}/t", {"status": {"state": "down"}, "spec": {"size": "m"}}, media=MERGE_PATCH)
    ).body
    assert (main["status"], main["metadata"]["generation"]) == ({"state": "up"}, 2)
    bad = await tabs("PATCH", f"{TABS}/t/status", {"status": {"state": 5}}, media=MERGE_PATCH)
    assert (bad.code, bad.body["details"]["causes"][0]["field"]) == (422, "status.state")


async def test_scale_follows_its_paths(tabs: DirectRequests) -> None:
    await tabs("POST", TABS, tab())
    await tabs("PATCH", f"{TABS}/t/status", {"status": {"replicas": 1}}, media=MERGE_PATCH)
    scale = (await tabs("GET", f"{TABS}/t/scale")).body
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 1})
    assert (await tabs("PATCH", f"{TABS}/t/scale", {"spec": {"replicas": 4}}, media=MERGE_PATCH)).code == 200
    assert (await tabs("PATCH", f"{TABS}/t/scale", {"spec": {"replicas": 9}}, media=MERGE_PATCH)).code == 422
    assert (await tabs("GET", f"{TABS}/t")).body["spec"]["replicas"] == 4


async def test_custom_kinds_take_apply_but_no_strategic_patch(tabs: DirectRequests) -> None:
    config = tab(items=[{"k": "a", "v": 1}, {"k": "b", "v": 2}])
    assert (await tabs("PATCH", f"{TABS}/t?fieldManager=one", config, media=APPLY_PATCH)).code == 201
    other = tab(items=[{"k": "c", "v": 3}])
    assert (await tabs("PATCH", f"{TABS}/t?fieldManager=two", other, media=APPLY_PATCH)).code == 200
    without = tab(items=[{"k": "b", "v": 2}])
    left = (await tabs("PATCH", f"{TABS}/t?fieldManager=one", without, media=APPLY_PATCH)).body
    assert [item["k"] for item in left["spec"]["items"]] == ["b", "c"]
    unknown = await tabs("PATCH", f"{TABS}/t?fieldManager=one", tab(nonsense=1), media=APPLY_PATCH)
    assert (unknown.code, ".spec.nonsense: field not declared in schema" in unknown.message) == (400, True)
    assert (await tabs("PATCH", f"{TABS}/t", {}, media=STRATEGIC_PATCH)).code == 415


async def test_kind_and_version_must_be_the_paths(tabs: DirectRequests) -> None:
    assert (await tabs("POST", TABS, {**tab(), "kind": "Other"})).code == 422
    assert (await tabs("POST", TABS, {**tab(), "apiVersion": "v1"})).code == 400
    assert (await tabs("POST", TABS, {"metadata": {"name": "x"}})).code == 400


async def test_two_versions_show_the_same_objects(ask: DirectRequests) -> None:
    body = definition()
    second = copy.deepcopy(body["spec"]["versions"][0])
    second |= {"name": "v2", "storage": False}
    body["spec"]["versions"].append(second)
    assert (await ask("POST", DEFINITIONS, body)).code == 201
    await ask("POST", TABS, tab())
    other = (await ask("GET", TABS.replace("v1", "v2") + "/t")).body
    assert (other["apiVersion"], other["spec"]["size"]) == ("example.io/v2", "s")
    listed = (await ask("GET", TABS.replace("v1", "v2"))).body["items"]
    assert [each["apiVersion"] for each in listed] == ["example.io/v2"]
    events = await ask.events(TABS.replace("v1", "v2") + "?watch=1&timeoutSeconds=1")
    assert events[0]["object"]["apiVersion"] == "example.io/v2"


async def test_selectable_fields_can_be_selected(ask: DirectRequests) -> None:
    body = definition()
    body["spec"]["versions"][0]["selectableFields"] = [{"jsonPath": ".spec.size"}]
    assert (await ask("POST", DEFINITIONS, body)).code == 201
    await ask("POST", TABS, tab("a", size="s"))
    await ask("POST", TABS, tab("b", size="m"))
    found = (await ask("GET", f"{TABS}?fieldSelector=spec.size=m")).body["items"]
    assert [each["metadata"]["name"] for each in found] == ["b"]
    assert (await ask("GET", f"{TABS}?fieldSelector=spec.name=m")).code == 400


async def test_a_definition_takes_its_objects_with_it(tabs: DirectRequests, server: ApiServer) -> None:
    await tabs("POST", TABS, tab("a"))
    await tabs("POST", TABS, {**tab("b"), "metadata": {"name": "b", "finalizers": ["x.y/z"]}})
    answer = await tabs("DELETE", f"{DEFINITIONS}/tabs.example.io")
    assert answer.body["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    await until(lambda: server.store.count(Bucket("example.io", "tabs")) == 1)
    assert (await tabs("GET", f"{DEFINITIONS}/tabs.example.io")).code == 200
    await tabs("PATCH", f"{TABS}/b", {"metadata": {"finalizers": None}}, media=MERGE_PATCH)
    await until(lambda: server.registry.find("example.io", "v1", "tabs") is None)
    assert (await tabs("GET", f"{DEFINITIONS}/tabs.example.io")).code == 404
    assert (await tabs("GET", TABS)).code == 404
    again = await tabs("POST", DEFINITIONS, definition())
    assert again.code == 201
    assert (await tabs("GET", TABS)).body["items"] == []


async def test_taken_names_are_not_accepted(tabs: DirectRequests) -> None:
    other = definition(names={"plural": "others", "singular": "other", "kind": "Tab"})
    other["metadata"]["name"] = "others.example.io"
    made = (await tabs("POST", DEFINITIONS, other)).body
    conditions = {each["type"]: (each["status"], each["reason"]) for each in made["status"]["conditions"]}
    assert conditions == {"NamesAccepted": ("False", "KindConflict"), "Established": ("False", "NotAccepted")}
    assert (await tabs("GET", "/apis/example.io/v1/others")).code == 404


def schema(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def field(body: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = schema(body)["properties"]["spec"]["properties"][name]
    return found


@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        (lambda body: body["metadata"].update(name="wrong"), "metadata.name"),
        (lambda body: body["spec"].pop("names"), "spec.names.plural"),
        (lambda body: body["spec"].update(scope="Nonsense"), "spec.scope"),
        (lambda body: body["spec"].pop("versions"), "spec.versions"),
        (lambda body: body["spec"]["versions"][0].update(storage=False), "spec.versions"),
        (lambda body: body["spec"]["versions"][0].pop("schema"), "spec.versions[0].schema.openAPIV3Schema"),
        (lambda body: schema(body).pop("type"), "spec.validation.openAPIV3Schema.type"),
        (lambda body: field(body, "size").pop("type"), ".properties[size].type"),
        (lambda body: field(body, "size").update(type="text"), ".properties[size].type"),
        (lambda body: field(body, "set").pop("items"), ".properties[set].items"),
        (lambda body: field(body, "replicas").update(default="x"), ".properties[replicas].default"),
        (lambda body: field(body, "replicas").update(default=99), ".properties[replicas].default"),
        (lambda body: field(body, "name").update(pattern="("), ".properties[name].pattern"),
        (lambda body: field(body, "items").pop("x-kubernetes-list-map-keys"), "x-kubernetes-list-map-keys"),
        (lambda body: field(body, "size").update({"$ref": "x"}), ".properties[size].$ref"),
        (lambda body: field(body, "set").update(uniqueItems=True), "uniqueItems"),
        (lambda body: field(body, "size").update(anyOf=[{"type": "string"}]), "anyOf[0].type"),
        (
            lambda body: schema(body)["properties"].update(metadata={"type": "object", "required": ["x"]}),
            "properties[metadata]",
        ),
    ],
)
async def test_bad_definitions_are_refused_by_field(
    ask: DirectRequests, spoil: Callable[[dict[str, Any]], Any], where: str
) -> None:
    body = definition()
    spoil(body)
    answer = await ask("POST", DEFINITIONS, body)
    assert (answer.code, answer.reason) == (422, "Invalid"), answer.body
    assert any(where in cause["field"] for cause in answer.body["details"]["causes"]), answer.body["details"]
    assert (await ask("GET", TABS)).code == 404


async def test_our_own_definitions_are_acceptable(ask: DirectRequests) -> None:
    for body in crds():
        answer = await ask("POST", f"{DEFINITIONS}?fieldValidation=Strict", body)
        assert answer.code == 201, answer.body
