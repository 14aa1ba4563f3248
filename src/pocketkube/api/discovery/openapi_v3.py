"""OpenAPI v3: the shapes of all served kinds, as kubectl reads them to explain, to apply and to validate.

There is an index, and one document per group version, made on first request from the models (built-in
kinds) or the structural schemas (custom kinds) and kept until the registry changes. Documents hold what
clients look for: a schema per type with descriptions, merge keys and enumerations, and paths whose
operations name their kind and the query parameters they take.
"""

from __future__ import annotations

import functools
import hashlib
import pathlib
from collections.abc import Mapping
from typing import Any

import msgspec

from pocketkube.api.content import field_models
from pocketkube.api.content.field_models import Field, Type
from pocketkube.api.discovery import openapi_paths
from pocketkube.api.registry import Registry, Resource

Obj = dict[str, Any]

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_LEAVES: dict[str, tuple[str, Obj]] = {
    "quantity": (
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        {
            "description": "A number with a suffix, such as 500m, 2 or 1Gi.",
            "oneOf": [{"type": "string"}, {"type": "number"}],
        },
    ),
    "int-or-string": (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        {
            "description": "A whole number, or a text such as a port's name or 25%.",
            "format": "int-or-string",
            "oneOf": [{"type": "integer"}, {"type": "string"}],
        },
    ),
    "time": (
        f"{_META}.Time",
        {"description": "A moment, as RFC 3339 writes it.", "type": "string", "format": "date-time"},
    ),
    "micro-time": (
        f"{_META}.MicroTime",
        {"description": "A moment with microseconds.", "type": "string", "format": "date-time"},
    ),
}
_SCALARS: dict[str, Obj] = {
    "string": {"type": "string"},
    "integer": {"type": "integer", "format": "int32"},
    "long": {"type": "integer", "format": "int64"},
    "number": {"type": "number", "format": "double"},
    "boolean": {"type": "boolean"},
    "bytes": {"type": "string", "format": "byte"},
    "any": {"type": "object"},
}
_FIELDS_V1 = (f"{_META}.FieldsV1", {"description": "A set of fields, as a tree of their names.", "type": "object"})
_ZEROS: dict[str, Any] = {"string": "", "integer": 0, "long": 0, "boolean": False, "number": 0}
# Bodies of requests whose kind is no resource of its own.
_OPTIONS = "meta_v1.DeleteOptions"


class OpenApi:
    """Documents by group version, encoded once."""

    def __init__(self, registry: Registry, version: str = "v1.34.4") -> None:
        self._registry = registry
        self._version = version
        self._generation = -1
        self._documents: dict[tuple[str, str], bytes] = {}
        self._index = b""

    def index(self) -> bytes:
        """`GET /openapi/v3`."""
        self._refresh()
        if not self._index:
            paths: Obj = {}
            for group, versions in sorted(self._registry.groups().items()):
                for version in versions:
                    place = f"apis/{group}/{version}" if group else f"api/{version}"
                    paths[place] = {"serverRelativeURL": f"/openapi/v3/{place}?hash={self._hash(group, version)}"}
            self._index = msgspec.json.encode({"paths": paths})
        return self._index

    def document(self, group: str, version: str) -> bytes | None:
        """`GET /openapi/v3/apis/<group>/<version>`; None if nothing is served there."""
        self._refresh()
        key = (group, version)
        if key not in self._documents:
            resources = self._registry.in_version(group, version)
            if not resources:
                return None
            self._documents[key] = msgspec.json.encode(_document(resources, self._version))
        return self._documents[key]

    def _refresh(self) -> None:
        if self._generation != self._registry.generation:
            self._generation = self._registry.generation
            builtin = {(each.group, each.version) for each in self._registry if not each.custom}
            self._documents = {key: text for key, text in self._documents.items() if key in builtin}
            self._index = b""

    def _hash(self, group: str, version: str) -> str:
        """Changes whenever the document could: clients cache documents under it."""
        facts = [
            (each.plural, each.kind, each.model, sorted(each.subresources), each.schema)
            for each in self._registry.in_version(group, version)
        ]
        return hashlib.sha256(msgspec.json.encode([self._version, facts])).hexdigest().upper()


def component(model: str) -> str:
    """The name of a type among the schemas: `core_v1.Pod` is `io.k8s.api.core.v1.Pod`."""
    module, _, name = model.partition(".")
    group, _, version = module.rpartition("_")
    if group == "meta":
        return f"{_META}.{name}"
    if group == "apiextensions":
        return f"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{name}"
    return f"io.k8s.api.{group}.{version}.{name}"


def custom_component(resource: Resource) -> str:
    """The same for a custom kind: the group backwards, as in Java packages."""
    reverse = ".".join(reversed(resource.group.split(".")))
    return f"{reverse}.{resource.version}.{resource.kind}"


def _document(resources: list[Resource], version: str) -> Obj:
    schemas: dict[str, Obj] = {}
    kinds: dict[str, list[Obj]] = {}
    for resource in resources:
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        list_kind = {**kind, "kind": resource.list_kind}
        if resource.model is not None:
            name = component(resource.model)
            _add(schemas, resource.model)
        else:
            name = custom_component(resource)
            schemas[name] = _custom(resource)
            _add(schemas, "meta_v1.ObjectMeta")
        kinds.setdefault(name, []).append(kind)
        if "list" in resource.verbs:
            _add(schemas, "meta_v1.ListMeta")
            schemas[f"{name}List"] = _list(name, resource.kind)
            kinds.setdefault(f"{name}List", []).append(list_kind)
    _add(schemas, _OPTIONS)
    for subresource in _other_kinds(resources):
        _add(schemas, subresource)
        group, _, short = subresource.partition(".")[0].rpartition("_")
        kind = {"group": "" if group == "core" else group, "version": short, "kind": subresource.partition(".")[2]}
        if subresource == "authentication_v1.TokenRequest":
            kind["group"] = "authentication.k8s.io"
        kinds.setdefault(component(subresource), []).append(kind)
    for name, found in kinds.items():
        schemas[name]["x-kubernetes-group-version-kind"] = found
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": version},
        "paths": openapi_paths.paths(resources, _schema_name),
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def _schema_name(resource: Resource) -> str:
    return component(resource.model) if resource.model is not None else custom_component(resource)


def _other_kinds(resources: list[Resource]) -> list[str]:
    """Kinds that are only spoken at subresources."""
    subresources = {name for resource in resources for name in resource.subresources}
    spoken = {"scale": "autoscaling_v1.Scale", "eviction": "policy_v1.Eviction"}
    spoken["token"] = "authentication_v1.TokenRequest"  # noqa: S105  a type
    return [model for name, model in spoken.items() if name in subresources]


def _add(schemas: dict[str, Obj], model: str) -> None:
    """A type and everything that it refers to."""
    waiting = [model]
    while waiting:
        name = waiting.pop()
        if component(name) in schemas:
            continue
        schemas[component(name)] = dict(_struct(name))
        for field in field_models.shape(name).fields.values():
            kind: Type | None = field.type
            while kind is not None and kind.of is not None:
                kind = kind.of
            if kind is not None and kind.form == "struct":
                waiting.append(kind.name)
            elif kind is not None and kind.form in _LEAVES:
                leaf, schema = _LEAVES[kind.form]
                schemas[leaf] = schema
    if component("meta_v1.ManagedFieldsEntry") in schemas:
        schemas[_FIELDS_V1[0]] = _FIELDS_V1[1]


@functools.cache
def _struct(model: str) -> Obj:
    text, fields = field_models.documentation(model)
    rules = _merge_rules().get(model, {})
    shape = field_models.shape(model)
    properties = {
        name: _property(field, fields.get(name, ""), rules.get(name, {})) for name, field in shape.fields.items()
    }
    schema: Obj = {"description": text, "type": "object", "properties": properties}
    required = [name for name, field in shape.fields.items() if field.required]
    if required:
        schema["required"] = required
    if rules.get("", {}).get("atomic"):
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _property(field: Field, text: str, rules: Mapping[str, Any]) -> Obj:
    schema = _enumerated(field, text) if field.values else _described(field.type, text)
    if field.name == "fieldsV1":
        schema = {"description": text, "allOf": [{"$ref": f"#/components/schemas/{_FIELDS_V1[0]}"}]}
    if not field.pointer and not field.omit and field.type.form in _ZEROS:
        schema["default"] = _ZEROS[field.type.form]
    if field.type.form == "struct" and not field.pointer:
        schema["default"] = {}
    if "list" in rules:
        schema["x-kubernetes-list-type"] = rules["list"]
    if "keys" in rules:
        schema["x-kubernetes-list-map-keys"] = rules["keys"]
    if "patch" in rules:
        schema["x-kubernetes-patch-strategy"] = ",".join(rules["patch"])
    if "key" in rules:
        schema["x-kubernetes-patch-merge-key"] = rules["key"]
    if rules.get("atomic"):
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _enumerated(field: Field, text: str) -> Obj:
    inner = {"list": "items", "map": "additionalProperties"}.get(field.type.form)
    if inner is None:
        text += "\n\nPossible enum values:" + "".join(f'\n - `"{value}"`' for value in field.values)
    schema = _described(field.type, text)
    (schema[inner] if inner else schema)["enum"] = list(field.values)
    return schema


def _described(kind: Type, text: str) -> Obj:
    described: Obj = {"description": text} if text else {}
    if kind.form == "list":
        return described | {"type": "array", "items": _item(kind.of or field_models.ANY)}
    if kind.form == "map":
        return described | {"type": "object", "additionalProperties": _item(kind.of or field_models.ANY)}
    if kind.form in _SCALARS:
        return described | _SCALARS[kind.form]
    reference = {"$ref": _reference(kind)}
    return described | {"allOf": [reference]} if described else reference


def _item(kind: Type) -> Obj:
    item = _described(kind, "")
    if kind.form == "struct":
        return {"allOf": [item], "default": {}}
    return {**item, "default": _ZEROS[kind.form]} if kind.form in _ZEROS else item


def _reference(kind: Type) -> str:
    name = component(kind.name) if kind.form == "struct" else _LEAVES[kind.form][0]
    return f"#/components/schemas/{name}"


def _list(name: str, kind: str) -> Obj:
    meta = {"allOf": [{"$ref": f"#/components/schemas/{_META}.ListMeta"}], "default": {}}
    items = {"type": "array", "items": {"allOf": [{"$ref": f"#/components/schemas/{name}"}], "default": {}}}
    return {
        "description": f"{kind}List is a list of {kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "items": items,
            "kind": {"type": "string"},
            "metadata": meta,
        },
    }


def _custom(resource: Resource) -> Obj:
    """The schema of a custom kind as it was registered, with the metadata that every object has."""
    schema = dict(resource.schema or {})
    schema.setdefault("type", "object")
    _, about = field_models.documentation("core_v1.Pod")
    meta = {"allOf": [{"$ref": f"#/components/schemas/{_META}.ObjectMeta"}], "description": about["metadata"]}
    schema["properties"] = {
        **(schema.get("properties") or {}),
        "apiVersion": {"type": "string", "description": about["apiVersion"]},
        "kind": {"type": "string", "description": about["kind"]},
        "metadata": meta,
    }
    return schema


@functools.cache
def _merge_rules() -> dict[str, dict[str, dict[str, Any]]]:
    data = pathlib.Path(__file__).parents[1] / "patches/merge_rules.json"
    return msgspec.json.decode(data.read_bytes(), type=dict[str, dict[str, dict[str, Any]]])
