"""Which definitions of custom kinds are acceptable: names, versions, and schemas that are structural."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from pocketkube.api.custom_kinds import defaulting, pruning, structural_validation, validation_rules
from pocketkube.api.custom_kinds.places import ROOT
from pocketkube.api.regular_expressions import PatternError, compiled
from pocketkube.api.status import Cause, bounded

Obj = dict[str, Any]
Level = Literal["root", "item", "field"]
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_TYPES = ("object", "array", "string", "integer", "number", "boolean")
_MISSING_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_JUNCTORS = ("allOf", "anyOf", "oneOf")


def validate(definition: Obj, old: Obj | None = None) -> list[Cause]:
    """Everything that is wrong with a definition."""
    spec = definition.get("spec") or {}
    changes = _immutable(definition, old) if old is not None else ()
    return bounded(
        itertools.chain(_names(definition, spec), _versions(spec), _contents(spec.get("versions") or []), changes)
    )


def _names(definition: Obj, spec: Obj) -> Iterator[Cause]:
    names, group = spec.get("names") or {}, spec.get("group") or ""
    if not group:
        yield _required("spec.group")
    elif not _DNS.fullmatch(group) or "." not in group:
        yield Cause("spec.group", f'Invalid value: "{group}": should be a domain with at least one dot')
    plural, kind = names.get("plural") or "", names.get("kind") or ""
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        problem = f'Unsupported value: {_json(spec.get("scope") or "")}: supported values: "Cluster", "Namespaced"'
        yield Cause("spec.scope", problem, "FieldValueNotSupported") if spec.get("scope") else _required("spec.scope")
    for field, value in (("plural", plural), ("singular", names.get("singular")), ("kind", kind)):
        if not value:
            yield _required(f"spec.names.{field}")
        elif value and not _LABEL.fullmatch(str(value).lower()):
            yield Cause(f"spec.names.{field}", f'Invalid value: "{value}": must be a DNS-1035 label')
    if kind and names.get("listKind") == kind:
        yield Cause("spec.names.listKind", f'Invalid value: "{kind}": kind and listKind may not be the same')
    expected = f"{plural}.{group}"
    name = (definition.get("metadata") or {}).get("name")
    if name != expected:
        yield Cause("metadata.name", f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group')


def _versions(spec: Obj) -> Iterator[Cause]:
    versions = spec.get("versions") or []
    stored = [version.get("name") for version in versions if version.get("storage")]
    if len(stored) != 1:
        yield Cause(
            "spec.versions",
            f"Invalid value: {_json(versions or None)}: must have exactly one version marked as storage version",
        )
    seen: set[str] = set()
    for index, version in enumerate(versions):
        name = version.get("name") or ""
        if not _LABEL.fullmatch(name):
            yield Cause(f"spec.versions[{index}].name", f'Invalid value: "{name}": must be a DNS-1035 label')
        if name in seen:
            yield Cause(
                f"spec.versions[{index}].name", f'Invalid value: "{name}": must not be repeated', "FieldValueInvalid"
            )
        seen.add(name)
    conversion = spec.get("conversion") or {}
    if conversion.get("strategy") not in (None, "None"):
        yield Cause(
            "spec.conversion.strategy",
            f'Unsupported value: "{conversion.get("strategy")}": supported values: "None"',
            "FieldValueNotSupported",
        )


def _contents(versions: list[Obj]) -> Iterator[Cause]:
    """Schemas, subresources and columns; where all versions agree, the server speaks of them once."""
    alone = all(_shared(versions[0]) == _shared(other) for other in versions)
    for index, version in enumerate(versions):
        if alone and index:
            return
        here = "spec" if alone else f"spec.versions[{index}]"
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not isinstance(schema, dict):
            yield _required(f"spec.versions[{index}].schema.openAPIV3Schema")
        else:
            yield from _schema(schema, f"{here}.{'validation' if alone else 'schema'}.openAPIV3Schema")
        yield from _subresources(version.get("subresources") or {}, f"{here}.subresources")
        yield from _columns(version, here)


def _shared(version: Obj) -> list[Any]:
    return [version.get(name) for name in ("schema", "subresources", "additionalPrinterColumns")]


def _schema(schema: Obj, path: str) -> Iterator[Cause]:
    causes = sorted(_structural(schema, "root", path), key=str)
    yield from causes
    if not causes:
        yield from _defaults(schema, path)


def _columns(version: Obj, path: str) -> Iterator[Cause]:
    for index, column in enumerate(version.get("additionalPrinterColumns") or []):
        here = f"{path}.additionalPrinterColumns[{index}]"
        for field in ("name", "type", "jsonPath"):
            if not column.get(field):
                yield _required(f"{here}.{field}")
        if column.get("type") and column["type"] not in ("integer", "number", "string", "boolean", "date"):
            problem = f'Invalid value: "{column["type"]}": must be one of boolean,date,integer,number,string'
            yield Cause(f"{here}.type", problem)


def _structural(schema: Mapping[str, Any], level: Level, path: str) -> Iterator[Cause]:
    yield from _type(schema, level, path)
    yield from _forbidden(schema, path)
    yield from _lists(schema, path)
    yield from _pattern(schema, path)
    yield from validation_rules.refused(schema, path)
    yield from _children(schema, level, path)
    either = schema.get("x-kubernetes-int-or-string")
    for name in _JUNCTORS:
        for index, inner in enumerate(schema.get(name) or []):
            exempt = either and name == "anyOf" and schema[name] == _INT_OR_STRING
            if not exempt:
                yield from _nested(inner, f"{path}.{name}[{index}]")
    if isinstance(schema.get("not"), Mapping):
        yield from _nested(schema["not"], f"{path}.not")


def _type(schema: Mapping[str, Any], level: Level, path: str) -> Iterator[Cause]:
    kind = schema.get("type") or ""
    preserve, either = schema.get(pruning.PRESERVE), schema.get("x-kubernetes-int-or-string")
    if kind and kind not in _TYPES:
        listed = ", ".join(f'"{each}"' for each in sorted(_TYPES))
        yield Cause(
            f"{path}.type", f'Unsupported value: "{kind}": supported values: {listed}', "FieldValueNotSupported"
        )
    if schema.get(pruning.EMBEDDED) and kind != "object":
        why = "must be object if x-kubernetes-embedded-resource is true"
        yield Cause(f"{path}.type", f'Invalid value: "{kind}": {why}') if kind else _required(f"{path}.type", why)
    elif not kind and not either and not preserve:
        yield _required(f"{path}.type", _MISSING_TYPE[level])
    if level == "root" and kind and kind != "object":
        yield Cause(f"{path}.type", f'Invalid value: "{kind}": must be object at the root')
    where = f"{path}.x-kubernetes-preserve-unknown-fields"
    if either and preserve:
        yield Cause(where, "Invalid value: true: must be false if x-kubernetes-int-or-string is true")
    if preserve is False:
        yield Cause(where, "Invalid value: false: must be true or undefined")


def _children(schema: Mapping[str, Any], level: Level, path: str) -> Iterator[Cause]:
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    if properties and extra not in (None, False):
        why = "additionalProperties and properties are mutual exclusive"
        yield Cause(f"{path}.additionalProperties", f"Forbidden: {why}", "FieldValueForbidden")
    if extra not in (None, False) and level == "root":
        yield Cause(f"{path}.additionalProperties", "Forbidden: must not be used at the root", "FieldValueForbidden")
    for name, inner in properties.items():
        yield from _property(name, inner, level, f"{path}.properties[{name}]")
    if isinstance(extra, Mapping):
        yield from _structural(extra, "field", f"{path}.additionalProperties")
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield from _structural(items, "item", f"{path}.items")
    elif isinstance(items, list):
        yield Cause(f"{path}.items", "Forbidden: items must be a schema object and not an array", "FieldValueForbidden")
    elif schema.get("type") == "array":
        yield _required(f"{path}.items", "must be specified")


def _property(name: str, schema: Any, level: Level, path: str) -> Iterator[Cause]:
    if not isinstance(schema, Mapping):
        yield Cause(path, f"Invalid value: {_json(schema)}: must be a schema")
    elif level == "root" and name == "metadata":
        allowed = {key for key in schema if key not in ("type", "description")} <= {"properties"}
        if not allowed or not set(schema.get("properties") or {}) <= {"name", "generateName"}:
            why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            yield Cause(path, f"Forbidden: {why}", "FieldValueForbidden")
    else:
        yield from _structural(schema, "field", path)


def _forbidden(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for name in (
        "$ref",
        "definitions",
        "dependencies",
        "deprecated",
        "discriminator",
        "id",
        "patternProperties",
        "xml",
    ):
        if schema.get(name):
            yield Cause(f"{path}.{name}", f"Forbidden: {name} is not supported", "FieldValueForbidden")
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield Cause(f"{path}.uniqueItems", f"Forbidden: {why}", "FieldValueForbidden")


def _lists(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or []
    if kind is not None and schema.get("type") != "array":
        yield Cause(
            f"{path}.type",
            f'Invalid value: "{schema.get("type") or ""}": must be array if x-kubernetes-list-type is specified',
        )
    if kind not in (None, "atomic", "set", "map"):
        problem = f'Unsupported value: "{kind}": supported values: "atomic", "set", "map"'
        yield Cause(f"{path}.x-kubernetes-list-type", problem, "FieldValueNotSupported")
    if kind == "map" and not keys:
        yield _required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
    items = schema.get("items") if isinstance(schema.get("items"), Mapping) else {}
    assert isinstance(items, Mapping)
    properties = items.get("properties") or {}
    for index, key in enumerate(keys):
        here = f"{path}.x-kubernetes-list-map-keys[{index}]"
        if key not in properties:
            yield Cause(here, f'Invalid value: "{key}": must name a property of the items')
        elif key not in (items.get("required") or []) and "default" not in properties[key]:
            where = f"{path}.items.properties[{key}].default"
            yield _required(
                where,
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            )


def _pattern(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    pattern = schema.get("pattern")
    if not pattern:
        return
    try:
        compiled(pattern)
    except PatternError as problem:
        why = f"must be a valid regular expression, but isn't: {problem}"
        yield Cause(f"{path}.pattern", f"Invalid value: {_json(pattern)}: {why}")


def _nested(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """Under a junctor there is no structure, only rules about values."""
    for name in ("type", "additionalProperties", "default", "nullable", "title", "description"):
        if schema.get(name) not in (None, "", False):
            yield Cause(f"{path}.{name}", "Forbidden: must be empty to be structural", "FieldValueForbidden")
    yield from _pattern(schema, path)
    for name, inner in (schema.get("properties") or {}).items():
        yield from _nested(inner, f"{path}.properties[{name}]")
    for name in _JUNCTORS:
        for index, inner in enumerate(schema.get(name) or []):
            yield from _nested(inner, f"{path}.{name}[{index}]")


def _defaults(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """Defaults must be valid values of their own schema, and survive pruning."""
    for name, inner in (schema.get("properties") or {}).items():
        here = f"{path}.properties[{name}]"
        if "default" in inner:
            value = msgspec.json.decode(msgspec.json.encode(inner["default"]))
            defaulting.fill(inner, value)
            unknown = pruning.unknown(inner, value)
            if unknown:
                yield Cause(f"{here}.default", f"Invalid value: {_json(inner['default'])}: must be pruned")
            for cause in structural_validation.check(inner, value, structural_validation.ABSENT, ROOT):
                yield Cause(f"{here}.default{'.' + cause.field if cause.field else ''}", cause.message, cause.reason)
        yield from _defaults(inner, here)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            yield from _defaults(schema[name], f"{path}.{name}")


def _subresources(parts: Obj, path: str) -> Iterator[Cause]:
    scale = parts.get("scale")
    if scale is None:
        return
    for field, prefix in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        value = scale.get(field) or ""
        if not value:
            yield _required(f"{path}.scale.{field}")
        elif not value.startswith("."):
            yield Cause(
                f"{path}.scale.{field}", f'Invalid value: "{value}": must be a simple json path starting with .'
            )
        elif not value.startswith(prefix):
            yield Cause(f"{path}.scale.{field}", f'Invalid value: "{value}": should be a json path under {prefix[:-1]}')


def _immutable(definition: Obj, old: Obj) -> Iterator[Cause]:
    new_spec, old_spec = definition.get("spec") or {}, old.get("spec") or {}
    fields = {
        "spec.group": (new_spec.get("group"), old_spec.get("group")),
        "spec.scope": (new_spec.get("scope"), old_spec.get("scope")),
        "spec.names.plural": ((new_spec.get("names") or {}).get("plural"), (old_spec.get("names") or {}).get("plural")),
        "spec.names.kind": ((new_spec.get("names") or {}).get("kind"), (old_spec.get("names") or {}).get("kind")),
    }
    for path, (new, before) in fields.items():
        if new != before:
            yield Cause(path, f"Invalid value: {_json(new)}: field is immutable")
    names = {version.get("name") for version in new_spec.get("versions") or []}
    for index, stored in enumerate((old.get("status") or {}).get("storedVersions") or []):
        if stored not in names:
            why = "must appear in spec.versions"
            yield Cause(f"status.storedVersions[{index}]", f'Invalid value: "{stored}": {why}')


def _required(path: str, why: str = "") -> Cause:
    return Cause(path, f"Required value: {why}" if why else "Required value", "FieldValueRequired")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
