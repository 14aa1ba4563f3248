"""The paths of OpenAPI documents: which operations a resource has, of which kind, with which parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pocketkube.api.discovery import resource_lists
from pocketkube.api.registry import Resource

Obj = dict[str, Any]

_CUSTOM_PATCHES = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
_PATCHES = (*_CUSTOM_PATCHES, "application/strategic-merge-patch+json")
_LIST = (
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
)
_WRITE = (("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"))
_DELETE = (
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
)
_PARAMETERS: dict[str, tuple[tuple[str, str], ...]] = {
    "get": (),
    "list": _LIST,
    "create": _WRITE,
    "update": _WRITE,
    "patch": (*_WRITE, ("force", "boolean")),
    "delete": _DELETE,
    "deletecollection": (*_LIST[1:9], *_DELETE),
}
_ON_COLLECTION = {"get": "list", "post": "create", "delete": "deletecollection"}
_ON_OBJECT = {"get": "get", "put": "update", "patch": "patch", "delete": "delete"}
_ON_SUBRESOURCE = {"get": "get", "put": "update", "patch": "patch", "post": "create", "delete": "delete"}


def paths(resources: Sequence[Resource], schema_name: Callable[[Resource], str]) -> Obj:
    """All paths of some resources of one group version."""
    found: Obj = {}
    for resource in resources:
        root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        home = (
            f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"
        )
        scope = ["namespace"] if resource.namespaced else []
        schema = schema_name(resource)
        kind = (resource.group, resource.version, resource.kind)
        patches = _CUSTOM_PATCHES if resource.custom else _PATCHES
        found[home] = _item(_ON_COLLECTION, resource.verbs, kind, schema, scope, patches)
        if resource.namespaced and "list" in resource.verbs:
            found[f"{root}/{resource.plural}"] = _item(_ON_COLLECTION, ("list",), kind, schema, [], patches)
        if "get" not in resource.verbs:
            continue
        found[f"{home}/{{name}}"] = _item(_ON_OBJECT, resource.verbs, kind, schema, [*scope, "name"], patches)
        for subresource in sorted(resource.subresources):
            group, version, name, verbs = resource_lists.subresource_facts(resource, subresource)
            place = f"{home}/{{name}}/{subresource}"
            same = (group, version, name) == kind
            found[place] = _item(
                _ON_SUBRESOURCE, verbs, (group, version, name), schema if same else "", [*scope, "name"], patches
            )
    return found


def _item(
    methods: dict[str, str],
    verbs: Sequence[str],
    kind: tuple[str, str, str],
    schema: str,
    parameters: list[str],
    patches: Sequence[str],
) -> Obj:
    served = {method: verb for method, verb in methods.items() if verb in verbs}
    item: Obj = {method: _operation(verb, kind, schema, patches) for method, verb in served.items()}
    if parameters:
        item["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in parameters
        ]
    return item


def _operation(verb: str, kind: tuple[str, str, str], schema: str, patches: Sequence[str]) -> Obj:
    group, version, name = kind
    operation: Obj = {
        "x-kubernetes-action": {"create": "post", "update": "put"}.get(verb, verb),
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": name},
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}
            for name, kind in _PARAMETERS[verb]
        ],
        "responses": {"200": _response(verb, schema)},
    }
    if verb in ("create", "update"):
        operation["requestBody"] = _body(("*/*",), schema)
    elif verb == "patch":
        operation["requestBody"] = _body(patches, "")
    return operation


def _response(verb: str, schema: str) -> Obj:
    if not schema or verb in ("delete", "deletecollection"):
        return {"description": "OK"}
    shown = f"{schema}List" if verb == "list" else schema
    content = {"schema": {"$ref": f"#/components/schemas/{shown}"}}
    return {"description": "OK", "content": {"application/json": content}}


def _body(media: Sequence[str], schema: str) -> Obj:
    shown = {"$ref": f"#/components/schemas/{schema}"} if schema else {"type": "object"}
    return {"required": True, "content": {each: {"schema": shown} for each in media}}
