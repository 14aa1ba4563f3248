"""Custom kinds: definitions, defaulting, pruning, validation, subresources, tables, the end."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.contract.raw_requests import APPLY_PATCH, MERGE_PATCH, STRATEGIC_PATCH, TABLE, RawRequests, until
from tests.environments.audit import SHARED
from tests.environments.cluster import Cluster

JSON = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

SPEC: JSON = {
    "type": "object",
    "required": ["size"],
    "x-kubernetes-validations": [
        {"rule": "!has(self.name) || self.name != 'aaa' || self.size == 'm'", "message": "three need room"},
        {"rule": "oldSelf.size == self.size || self.replicas > 1", "messageExpression": "'not with ' + self.size"},
    ],
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
        "one": {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
    },
}


def definition(group: str) -> JSON:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "string", "jsonPath": ".spec.size"},
            {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
        ],
        "selectableFields": [{"jsonPath": ".spec.size"}],
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
    names = {"plural": "tabs", "singular": "tab", "kind": "Tab", "shortNames": ["tb"]}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": f"tabs.{group}"}, "spec": spec}


@dataclass(frozen=True)
class Tabs:
    """A custom kind that is served, in the test's namespace."""

    ask: RawRequests
    group: str
    path: str

    def tab(self, called: str = "t", /, **spec: Any) -> JSON:
        return {
            "apiVersion": f"{self.group}/v1",
            "kind": "Tab",
            "metadata": {"name": called},
            "spec": {"size": "s", **spec},
        }


@pytest.fixture(scope="module")
def definitions() -> Iterator[dict[Cluster, str]]:
    """The group of a custom kind that tests of this module share, by cluster: a real server takes 2 s to serve one."""
    groups: dict[Cluster, str] = {}
    yield groups
    for cluster, group in groups.items():
        cluster.api.delete(f"{DEFINITIONS}/tabs.{group}")


@pytest.fixture
async def tabs(
    ask: RawRequests, group: str, any_cluster: Cluster, definitions: dict[Cluster, str], namespace: str
) -> Tabs:
    """For tests that leave the definition as it is."""
    if any_cluster not in definitions:
        definitions[any_cluster] = group
        await _define(Tabs(ask, group, ""), labels={SHARED: "yes"})
    shared = definitions[any_cluster]
    found = Tabs(ask, shared, f"/apis/{shared}/v1/namespaces/{namespace}/tabs")
    await _served(found)
    return found


@pytest.fixture
async def own_tabs(ask: RawRequests, group: str, namespace: str) -> AsyncIterator[Tabs]:
    found = Tabs(ask, group, f"/apis/{group}/v1/namespaces/{namespace}/tabs")
    await _define(found)
    await _served(found)
    yield found
    await ask("DELETE", f"{DEFINITIONS}/tabs.{group}")
    await _forgotten(found)


async def _define(tabs: Tabs, **metadata: Any) -> None:
    body = definition(tabs.group)
    body["metadata"] |= metadata
    made = await tabs.ask("POST", DEFINITIONS, body)
    assert made.code == 201, made.body


async def _forgotten(tabs: Tabs) -> None:
    async def unknown() -> bool:
        gone = (await tabs.ask("GET", f"{DEFINITIONS}/tabs.{tabs.group}")).code == 404
        groups = (await tabs.ask("GET", "/apis")).body["groups"]
        return gone and all(each["name"] != tabs.group for each in groups)

    await until(unknown, "the custom kind is forgotten")


async def _served(tabs: Tabs) -> None:
    async def established() -> bool:
        conditions = (await tabs.ask("GET", f"{DEFINITIONS}/tabs.{tabs.group}")).body["status"]["conditions"] or []
        served = (await tabs.ask("GET", tabs.path)).code == 200
        return served and any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    await until(established, "the custom kind is served")


async def test_a_definition_says_what_it_accepted(tabs: Tabs) -> None:
    found = (await tabs.ask("GET", f"{DEFINITIONS}/tabs.{tabs.group}")).body
    conditions = {each["type"]: (each["status"], each["reason"]) for each in found["status"]["conditions"]}
    assert conditions == {"NamesAccepted": ("True", "NoConflicts"), "Established": ("True", "InitialNamesAccepted")}
    assert found["status"]["storedVersions"] == ["v1"]
    assert found["status"]["acceptedNames"]["listKind"] == "TabList"
    assert found["spec"]["conversion"] == {"strategy": "None"}
    discovered = (await tabs.ask("GET", f"/apis/{tabs.group}/v1")).body["resources"]
    assert {each["name"] for each in discovered} == {"tabs", "tabs/status", "tabs/scale"}


async def test_a_status_that_has_a_default_is_there_from_the_start(
    ask: RawRequests, group: str, namespace: str
) -> None:
    tabs = Tabs(ask, group, f"/apis/{group}/v1/namespaces/{namespace}/tabs")
    body = definition(group)
    status = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    status["default"] = {"state": "new", "replicas": 1}
    assert (await ask("POST", DEFINITIONS, body)).code == 201
    await _served(tabs)
    made = await ask("POST", tabs.path, tabs.tab() | {"status": {"state": "mine"}})
    assert (made.code, made.body["status"]) == (201, status["default"])
    assert [each["subresource"] for each in made.meta["managedFields"] if "subresource" in each] == []
    assert (await ask("GET", f"{tabs.path}/t")).body["status"] == status["default"]
    change = {"status": {"state": "mine"}, "spec": {"replicas": 3}}
    main = await ask("PATCH", f"{tabs.path}/t", change, MERGE_PATCH)
    assert (main.body["status"], main.body["spec"]["replicas"]) == (status["default"], 3)
    patched = await ask("PATCH", f"{tabs.path}/t/status", change, MERGE_PATCH)
    assert patched.body["status"] == {"state": "mine", "replicas": 1}
    await ask("DELETE", f"{DEFINITIONS}/tabs.{group}")
    await _forgotten(tabs)


async def test_defaults_are_filled_and_unknown_fields_forgotten(tabs: Tabs) -> None:
    body = tabs.tab(unknown=1, any={"x": {"y": 1}}, items=[{"k": "a"}], replicas=None)
    made = await tabs.ask("POST", tabs.path, body)
    assert made.body["spec"] == {"size": "s", "replicas": 2, "any": {"x": {"y": 1}}, "items": [{"k": "a", "v": 7}]}
    assert made.meta["generation"] == 1
    assert made.warnings == ('299 - "unknown field \\"spec.unknown\\""',)
    strict = await tabs.ask("POST", tabs.path, tabs.tab("u", unknown=1), fieldValidation="Strict")
    assert (strict.code, strict.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.unknown"' in strict.message


@pytest.mark.parametrize(
    ("spec", "cause", "message"),
    [
        (
            {"size": "xl"},
            ("FieldValueNotSupported", "spec.size"),
            'Unsupported value: "xl": supported values: "s", "m"',
        ),
        ({"size": None}, ("FieldValueRequired", "spec.size"), "Required value"),
        ({"replicas": 0}, ("FieldValueInvalid", "spec.replicas"), "should be greater than or equal to 1"),
        ({"replicas": 9}, ("FieldValueInvalid", "spec.replicas"), "should be less than or equal to 5"),
        ({"replicas": "2"}, ("FieldValueTypeInvalid", "spec.replicas"), 'must be of type integer: "string"'),
        ({"name": "b"}, ("FieldValueInvalid", "spec.name"), "spec.name in body should match '^a+$'"),
        ({"name": "aaaaaaa"}, ("FieldValueTooLong", "spec.name"), "Too long: may not be more than 5 bytes"),
        ({"name": "aaa"}, ("FieldValueInvalid", "spec"), "three need room"),
        ({"set": ["a", "a"]}, ("FieldValueDuplicate", "spec.set[1]"), 'Duplicate value: "a"'),
        ({"set": ["a", "b", "c"]}, ("FieldValueTooMany", "spec.set"), "Too many: 3: must have at most 2 items"),
        ({"items": [{"k": "a"}, {"k": "a"}]}, ("FieldValueDuplicate", "spec.items[1]"), 'Duplicate value: {"k":"a"}'),
        ({"items": [{"v": 1}]}, ("FieldValueRequired", "spec.items[0].k"), "Required value"),
        ({"numbers": {"a": "x"}}, ("FieldValueTypeInvalid", "spec.numbers.a"), "must be of type integer"),
        ({"either": {}}, ("FieldValueTypeInvalid", "spec.either"), "must be of type integer,string"),
        ({"when": "yesterday"}, ("FieldValueTypeInvalid", "spec.when"), 'must be of type date-time: "yesterday"'),
        (
            {"one": {}},
            ("FieldValueInvalid", "<nil>"),
            "must validate one and only one schema (oneOf). Found none valid",
        ),
    ],
)
async def test_values_are_judged_by_the_schema(tabs: Tabs, spec: JSON, cause: tuple[str, str], message: str) -> None:
    answer = await tabs.ask("POST", tabs.path, tabs.tab(**spec))
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert cause in answer.causes
    assert message in answer.message
    assert answer.body["details"] | {"causes": None} == {
        "name": "t",
        "group": tabs.group,
        "kind": "Tab",
        "causes": None,
    }


async def test_good_values_pass(tabs: Tabs) -> None:
    good = tabs.tab(either="5%", maybe=None, when="2026-01-01T00:00:00Z", numbers={"a": 1}, set=["b", "a"], name="aa")
    made = await tabs.ask("POST", tabs.path, good)
    assert (made.code, made.body["spec"]["maybe"]) == (201, None)


async def test_status_is_written_only_through_its_own_endpoint(tabs: Tabs) -> None:
    made = await tabs.ask("POST", tabs.path, {**tabs.tab(), "status": {"state": "ignored"}})
    assert "status" not in made.body
    patch = {"status": {"state": "up"}, "spec": {"size": "m"}, "metadata": {"labels": {"a": "b"}}}
    changed = await tabs.ask("PATCH", f"{tabs.path}/t/status", patch, MERGE_PATCH)
    assert (changed.body["status"], changed.body["spec"]["size"]) == ({"state": "up"}, "s")
    assert "labels" not in changed.meta
    assert changed.meta["generation"] == 1
    patch = {"status": {"state": "down"}, "spec": {"size": "m"}}
    main = await tabs.ask("PATCH", f"{tabs.path}/t", patch, MERGE_PATCH)
    assert (main.body["status"], main.meta["generation"]) == ({"state": "up"}, 2)
    bad = await tabs.ask("PATCH", f"{tabs.path}/t/status", {"status": {"state": 5}}, MERGE_PATCH)
    # A server does not apply rules to what is of the wrong type, and says so.
    assert (bad.code, bad.causes) == (422, [("FieldValueTypeInvalid", "status.state"), ("FieldValueInvalid", "<nil>")])
    assert "some validation rules were not checked because the object was invalid" in bad.message


async def test_an_update_does_not_judge_what_it_leaves_alone(own_tabs: Tabs) -> None:
    tabs = own_tabs
    await tabs.ask("POST", tabs.path, tabs.tab(replicas=5))
    stricter = (await tabs.ask("GET", f"{DEFINITIONS}/tabs.{tabs.group}")).body
    schema = stricter["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["replicas"]["maximum"] = 3
    assert (await tabs.ask("PUT", f"{DEFINITIONS}/tabs.{tabs.group}", stricter)).code == 200

    async def in_force() -> bool:
        return (await tabs.ask("POST", tabs.path, tabs.tab("x", replicas=4), dryRun="All")).code == 422

    await until(in_force, "the new schema is in force")
    assert (await tabs.ask("PATCH", f"{tabs.path}/t", {"spec": {"size": "m"}}, MERGE_PATCH)).code == 200
    assert (await tabs.ask("PATCH", f"{tabs.path}/t", {"spec": {"replicas": 4}}, MERGE_PATCH)).code == 422


async def test_rules_compare_with_what_was_there(tabs: Tabs) -> None:
    assert (await tabs.ask("POST", tabs.path, tabs.tab(replicas=1, size="m"))).code == 201
    refused = await tabs.ask("PATCH", f"{tabs.path}/t", {"spec": {"size": "s"}}, MERGE_PATCH)
    assert (refused.code, refused.causes) == (422, [("FieldValueInvalid", "spec")])
    assert "not with s" in refused.message
    assert (await tabs.ask("PATCH", f"{tabs.path}/t", {"spec": {"size": "s", "replicas": 2}}, MERGE_PATCH)).code == 200


async def test_two_versions_show_the_same_objects(ask: RawRequests, group: str, namespace: str) -> None:
    body = definition(group)
    older = copy.deepcopy(body["spec"]["versions"][0]) | {"name": "v1alpha1", "storage": False}
    body["spec"]["versions"].append(older)
    old, new = (f"/apis/{group}/{version}/namespaces/{namespace}/tabs" for version in ("v1alpha1", "v1"))
    tabs = Tabs(ask, group, old)
    assert (await ask("POST", DEFINITIONS, body)).code == 201
    await _served(tabs)
    assert (await ask("POST", old, tabs.tab() | {"apiVersion": f"{group}/v1alpha1"})).code == 201
    found = (await ask("GET", f"{new}/t")).body
    assert (found["apiVersion"], found["spec"]["size"]) == (f"{group}/v1", "s")
    preferred = next(each for each in (await ask("GET", "/apis")).body["groups"] if each["name"] == group)
    assert preferred["preferredVersion"]["version"] == "v1"
    await ask("DELETE", f"{DEFINITIONS}/tabs.{group}")
    await _forgotten(tabs)


async def test_scale_follows_its_paths(tabs: Tabs) -> None:
    await tabs.ask("POST", tabs.path, tabs.tab())
    await tabs.ask("PATCH", f"{tabs.path}/t/status", {"status": {"replicas": 1}}, MERGE_PATCH)
    scale = (await tabs.ask("GET", f"{tabs.path}/t/scale")).body
    assert (scale["apiVersion"], scale["spec"], scale["status"]) == ("autoscaling/v1", {"replicas": 2}, {"replicas": 1})
    assert (await tabs.ask("PATCH", f"{tabs.path}/t/scale", {"spec": {"replicas": 4}}, MERGE_PATCH)).code == 200
    assert (await tabs.ask("PATCH", f"{tabs.path}/t/scale", {"spec": {"replicas": 9}}, MERGE_PATCH)).code == 422
    assert (await tabs.ask("GET", f"{tabs.path}/t")).body["spec"]["replicas"] == 4


async def test_custom_kinds_take_apply_but_no_strategic_patch(tabs: Tabs) -> None:
    path = f"{tabs.path}/t"
    config = tabs.tab(items=[{"k": "a", "v": 1}, {"k": "b", "v": 2}])
    assert (await tabs.ask("PATCH", path, config, APPLY_PATCH, fieldManager="one")).code == 201
    other = tabs.tab(items=[{"k": "c", "v": 3}])
    assert (await tabs.ask("PATCH", path, other, APPLY_PATCH, fieldManager="two")).code == 200
    left = await tabs.ask("PATCH", path, tabs.tab(items=[{"k": "b", "v": 2}]), APPLY_PATCH, fieldManager="one")
    assert [item["k"] for item in left.body["spec"]["items"]] == ["b", "c"]
    conflict = await tabs.ask("PATCH", path, tabs.tab(items=[{"k": "c", "v": 9}]), APPLY_PATCH, fieldManager="one")
    assert (conflict.code, conflict.causes) == (409, [("FieldManagerConflict", '.spec.items[k="c"].v')])
    assert (await tabs.ask("PATCH", path, {}, STRATEGIC_PATCH)).code == 415


async def test_the_document_offers_no_strategic_patch_for_custom_kinds(tabs: Tabs) -> None:
    """kubectl apply sends the patch that the document offers."""
    place = f"/apis/{tabs.group}/v1/namespaces/{{namespace}}/tabs/{{name}}"

    offered: set[str] = set()

    async def told() -> bool:
        answer = await tabs.ask("GET", f"/openapi/v3/apis/{tabs.group}/v1")
        item = answer.body.get("paths", {}).get(place) if answer.code == 200 else None
        offered.update(item["patch"]["requestBody"]["content"] if item else ())
        return bool(offered)

    await until(told, "the kind is in the document")
    assert MERGE_PATCH in offered
    assert STRATEGIC_PATCH not in offered


async def test_custom_kinds_insist_on_a_version(tabs: Tabs) -> None:
    await tabs.ask("POST", tabs.path, tabs.tab())
    blind = await tabs.ask("PUT", f"{tabs.path}/t", tabs.tab(size="m"))
    assert (blind.code, blind.causes) == (422, [("FieldValueInvalid", "metadata.resourceVersion")])
    current = (await tabs.ask("GET", f"{tabs.path}/t")).body
    current["spec"]["size"] = "m"
    assert (await tabs.ask("PUT", f"{tabs.path}/t", current)).code == 200


async def test_kind_and_version_must_be_the_paths(tabs: Tabs) -> None:
    wrong = await tabs.ask("POST", tabs.path, {**tabs.tab(), "kind": "Other"})
    assert (wrong.code, wrong.causes) == (422, [("FieldValueInvalid", "kind")])
    assert (await tabs.ask("POST", tabs.path, {**tabs.tab(), "apiVersion": "v1"})).code == 400
    assert (await tabs.ask("POST", tabs.path, {"metadata": {"name": "x"}})).code == 400


async def test_tables_have_the_columns_of_the_definition(tabs: Tabs) -> None:
    await tabs.ask("POST", tabs.path, tabs.tab())
    table = (await tabs.ask("GET", tabs.path, accept=TABLE)).body
    columns = [(column["name"], column["type"], column["priority"]) for column in table["columnDefinitions"]]
    assert columns == [("Name", "string", 0), ("Size", "string", 0), ("Replicas", "integer", 1)]
    assert [row["cells"] for row in table["rows"]] == [["t", "s", 2]]


async def test_selectable_fields_can_be_selected(tabs: Tabs) -> None:
    await tabs.ask("POST", tabs.path, tabs.tab("a", size="s"))
    await tabs.ask("POST", tabs.path, tabs.tab("b", size="m"))
    found = (await tabs.ask("GET", tabs.path, fieldSelector="spec.size=m")).body["items"]
    assert [each["metadata"]["name"] for each in found] == ["b"]
    assert (await tabs.ask("GET", tabs.path, fieldSelector="spec.name=m")).code == 400


async def test_a_definition_takes_its_objects_with_it(own_tabs: Tabs) -> None:
    tabs = own_tabs
    held = {**tabs.tab("held"), "metadata": {"name": "held", "finalizers": ["x.y/z"]}}
    await tabs.ask("POST", tabs.path, held)
    await tabs.ask("POST", tabs.path, tabs.tab("free"))
    marked = await tabs.ask("DELETE", f"{DEFINITIONS}/tabs.{tabs.group}")
    assert marked.meta["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]

    async def only_one_left() -> bool:
        answer = await tabs.ask("GET", tabs.path)
        return answer.code == 200 and [each["metadata"]["name"] for each in answer.body["items"]] == ["held"]

    await until(only_one_left, "objects that nobody holds are gone")
    await tabs.ask("PATCH", f"{tabs.path}/held", {"metadata": {"finalizers": None}}, MERGE_PATCH)

    async def all_gone() -> bool:
        return (await tabs.ask("GET", f"{DEFINITIONS}/tabs.{tabs.group}")).code == 404

    await until(all_gone, "the definition is gone")


def schema(body: JSON) -> JSON:
    found: JSON = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def field(body: JSON, name: str) -> JSON:
    found: JSON = schema(body)["properties"]["spec"]["properties"][name]
    return found


@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        (lambda body: body["metadata"].update(name="wrong.example.io"), "metadata.name"),
        (lambda body: body["spec"].pop("names"), "spec.names.plural"),
        (lambda body: body["spec"].update(scope="Nonsense"), "spec.scope"),
        (lambda body: body["spec"].pop("versions"), "spec.versions"),
        (lambda body: body["spec"]["versions"][0].update(storage=False), "spec.versions"),
        (lambda body: body["spec"]["versions"][0].pop("schema"), "spec.versions[0].schema.openAPIV3Schema"),
        (lambda body: schema(body).pop("type"), "spec.validation.openAPIV3Schema.type"),
        (lambda body: field(body, "name").pop("type"), "properties[spec].properties[name].type"),
        (lambda body: field(body, "name").update(type="text"), "properties[spec].properties[name].type"),
        (lambda body: field(body, "set").pop("items"), "properties[spec].properties[set].items"),
        (lambda body: field(body, "replicas").update(default="x"), "properties[spec].properties[replicas].default"),
        (lambda body: field(body, "replicas").update(default=99), "properties[spec].properties[replicas].default"),
        (lambda body: field(body, "name").update(pattern="("), "properties[spec].properties[name].pattern"),
        (lambda body: field(body, "items").pop("x-kubernetes-list-map-keys"), "x-kubernetes-list-map-keys"),
        (lambda body: field(body, "name").update({"$ref": "x"}), "properties[spec].properties[name].$ref"),
        (lambda body: field(body, "set").update(uniqueItems=True), "uniqueItems"),
        (lambda body: field(body, "name").update(anyOf=[{"type": "string"}]), "anyOf[0].type"),
    ],
)
async def test_bad_definitions_are_refused_by_field(
    ask: RawRequests, group: str, namespace: str, spoil: Callable[[JSON], Any], where: str
) -> None:
    body = definition(group)
    del body["spec"]["versions"][0]["selectableFields"]
    spoil(body)
    answer = await ask("POST", DEFINITIONS, body)
    assert (answer.code, answer.reason) == (422, "Invalid"), answer.body
    assert any(where in cause for _, cause in answer.causes), answer.causes
