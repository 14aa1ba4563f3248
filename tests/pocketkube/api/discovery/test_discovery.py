"""What the server tells clients about itself: discovery, OpenAPI, and kubectl explain over it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from pocketkube.api.discovery import resource_lists
from pocketkube.api.discovery.openapi_v3 import OpenApi
from pocketkube.api.registry import Registry, Resource
from tests.environments.cluster import Cluster
from tests.environments.control_plane import ControlPlane
from tests.environments.embedded import Embedded

Obj = dict[str, Any]

WIDGETS = Resource(
    "x.io",
    "v1alpha1",
    "Widget",
    "widgets",
    "widget",
    namespaced=True,
    short_names=("wd",),
    subresources=frozenset({"status", "scale"}),
    schema={"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}},
)


@pytest.fixture
def registry() -> Registry:
    return Registry.builtin()


def test_legacy_and_aggregated_discovery_say_the_same(registry: Registry) -> None:
    registry.add(WIDGETS)
    for core in (True, False):
        for group in resource_lists.aggregated(registry, core=core)["items"]:
            name = group["metadata"].get("name", "")
            for version in group["versions"]:
                listed = resource_lists.resource_list(registry, name, version["version"])
                assert listed is not None
                flat = {
                    each["resource"] + (f"/{sub['subresource']}" if sub else "")
                    for each in version["resources"]
                    for sub in (None, *each.get("subresources", ()))
                }
                assert flat == {each["name"] for each in listed["resources"]}


def test_custom_groups_come_and_go(registry: Registry) -> None:
    assert resource_lists.group(registry, "x.io") is None
    registry.add(WIDGETS)
    found = resource_lists.group(registry, "x.io")
    assert found is not None
    assert found["preferredVersion"]["version"] == "v1alpha1"
    assert resource_lists.group_list(registry)["groups"][-1]["name"] == "x.io"
    registry.remove(WIDGETS)
    assert resource_lists.resource_list(registry, "x.io", "v1alpha1") is None


def test_versions_are_preferred_in_the_order_of_kubernetes() -> None:
    registry = Registry()
    for version in ("v1alpha1", "v2beta1", "v1", "v10", "v2", "foo", "v2beta2"):
        registry.add(Resource("x.io", version, "Widget", "widgets", "widget", namespaced=True))
    assert registry.groups()["x.io"] == ["v10", "v2", "v1", "v2beta2", "v2beta1", "v1alpha1", "foo"]


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", "v2"),
        ("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", "v2beta1"),
        ("application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json", None),
        ("application/json, application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", None),
        ("*/*", None),
        ("", None),
        (";;=,", None),
    ],
)
def test_clients_choose_the_form_of_discovery(accept: str, version: str | None) -> None:
    assert resource_lists.aggregated_version_wanted(accept) == version


def test_every_reference_in_openapi_leads_somewhere(registry: Registry) -> None:
    registry.add(WIDGETS)
    documents = OpenApi(registry)
    for path in json.loads(documents.index())["paths"]:
        parts = path.split("/")
        body = documents.document("" if parts[0] == "api" else parts[1], parts[-1])
        assert body is not None
        document = json.loads(body)
        schemas = document["components"]["schemas"]
        for reference in _references(document):
            assert reference.removeprefix("#/components/schemas/") in schemas, (path, reference)


def test_patches_name_their_kind_and_take_field_validation(registry: Registry) -> None:
    registry.add(WIDGETS)
    documents = OpenApi(registry)
    for resource in registry:
        if "patch" not in resource.verbs:
            continue
        body = documents.document(resource.group, resource.version)
        assert body is not None
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        patches = [item["patch"] for item in json.loads(body)["paths"].values() if "patch" in item]
        own = [each for each in patches if each["x-kubernetes-group-version-kind"] == kind]
        assert own, resource.kind
        for operation in own:
            assert {"fieldValidation", "dryRun", "fieldManager"} <= {each["name"] for each in operation["parameters"]}


def test_openapi_changes_its_address_when_a_kind_changes(registry: Registry) -> None:
    documents = OpenApi(registry)
    before = json.loads(documents.index())["paths"]
    registry.add(WIDGETS)
    after = json.loads(documents.index())["paths"]
    assert after["api/v1"] == before["api/v1"]
    assert "apis/x.io/v1alpha1" in after
    changed = Resource(**{**_fields(WIDGETS), "schema": {"type": "object"}})
    registry.add(changed)
    assert json.loads(documents.index())["paths"]["apis/x.io/v1alpha1"] != after["apis/x.io/v1alpha1"]


def test_merge_keys_are_told_to_clients(registry: Registry) -> None:
    body = OpenApi(registry).document("", "v1")
    assert body is not None
    containers = json.loads(body)["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]


EXPLAINED = (
    *("pod --recursive", "deployment --recursive", "job --recursive", "service --recursive", "node --recursive"),
    *("deployment", "crd.spec", "pod.spec.containers.resources", "lease.spec", "configmap"),
)


@pytest.mark.real
@pytest.mark.kubectl
@pytest.mark.parametrize("what", EXPLAINED)
def test_kubectl_explains_as_on_a_real_server(
    embedded_cluster: Embedded, control_plane: ControlPlane, what: str
) -> None:
    assert embedded_cluster.kubectl("explain", *what.split()) == control_plane.kubectl("explain", *what.split())


@pytest.mark.kubectl
def test_kubectl_explains_custom_kinds(any_cluster: Cluster) -> None:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {"size": {"type": "integer", "description": "How large it is."}},
            }
        },
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {
        "group": "explained.io",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [version],
    }
    home = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    any_cluster.api.create(home, {"metadata": {"name": "things.explained.io"}, "spec": spec})
    try:
        deadline = time.monotonic() + 30
        while "How large it is." not in any_cluster.kubectl("explain", "things.spec", check=False):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        printed = any_cluster.kubectl("explain", "things.spec")
        assert "size\t<integer> -required-" in printed
        assert "GROUP:      explained.io" in printed
    finally:
        any_cluster.api.delete(f"{home}/things.explained.io")


def _fields(resource: Resource) -> Obj:
    return {name: getattr(resource, name) for name in resource.__dataclass_fields__}


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [each for inner in value.values() for each in _references(inner)]
    return [each for inner in value for each in _references(inner)] if isinstance(value, list) else []
