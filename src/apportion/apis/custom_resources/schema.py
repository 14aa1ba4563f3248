"""Structural schemas (OpenAPI v3 as CustomResourceDefinitions want it) out of msgspec Structs.

A field without a default is required. Constraints and descriptions come from `msgspec.Meta`; what JSON
schema cannot be told by types (defaults, list types, unknown fields to keep) stands in its
`extra_json_schema`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect

Schema = dict[str, Any]

OPEN = msgspec.Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})
"""For an object in manifests of other versions, with fields that we do not know: they are accepted and kept."""


def structural(struct: type[msgspec.Struct]) -> Schema:
    """The schema of a Struct, nested ones written out."""
    return _schema(inspect.type_info(struct))


def _schema(info: inspect.Type) -> Schema:
    if isinstance(info, inspect.Metadata):
        return {**_schema(info.type), **_documented(info)}
    if isinstance(info, inspect.UnionType):
        return _optional(info)
    writer = _WRITERS.get(type(info))
    if writer is None:
        raise TypeError(f"{type(info).__name__} has no place in a structural schema")
    return writer(info)


def _documented(info: inspect.Metadata) -> Schema:
    return dict(info.extra_json_schema or {})


def _optional(info: inspect.UnionType) -> Schema:
    """`X | None` is X that may be absent; a null is dropped by the server as if absent."""
    inner = [part for part in info.types if not isinstance(part, inspect.NoneType)]
    if len(inner) != 1:
        raise TypeError("a structural schema has no unions other than with None")
    return _schema(inner[0])


def _struct(info: inspect.StructType) -> Schema:
    schema: Schema = {"type": "object"}
    if info.cls.__doc__:
        schema["description"] = " ".join(info.cls.__doc__.split())
    if info.fields:
        schema["properties"] = {field.encode_name: _schema(field.type) for field in info.fields}
    required = [field.encode_name for field in info.fields if field.required]
    if required:
        schema["required"] = required
    return schema


def _number(info: inspect.IntType | inspect.FloatType) -> Schema:
    whole = isinstance(info, inspect.IntType)
    schema: Schema = {"type": "integer", "format": "int64"} if whole else {"type": "number"}
    if info.ge is not None:
        schema["minimum"] = int(info.ge) if float(info.ge).is_integer() else info.ge
    if info.le is not None:
        schema["maximum"] = int(info.le) if float(info.le).is_integer() else info.le
    return schema


def _string(info: inspect.StrType) -> Schema:
    schema: Schema = {"type": "string"}
    for name, value in (("minLength", info.min_length), ("maxLength", info.max_length), ("pattern", info.pattern)):
        if value is not None:
            schema[name] = value
    return schema


def _mapping(info: inspect.DictType) -> Schema:
    if isinstance(info.value_type, inspect.AnyType):
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"type": "object", "additionalProperties": _schema(info.value_type)}


def _literal(info: inspect.LiteralType) -> Schema:
    return {"type": "string", "enum": sorted(info.values)}


_WRITERS: dict[type[inspect.Type], Callable[[Any], Schema]] = {
    inspect.StructType: _struct,
    inspect.IntType: _number,
    inspect.FloatType: _number,
    inspect.DecimalType: lambda _: {"type": "number"},
    inspect.StrType: _string,
    inspect.BoolType: lambda _: {"type": "boolean"},
    inspect.ListType: lambda info: {"type": "array", "items": _schema(info.item_type)},
    inspect.DictType: _mapping,
    inspect.LiteralType: _literal,
}
