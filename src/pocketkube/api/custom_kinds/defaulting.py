"""Defaults of a structural schema, filled in wherever their parent exists."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pocketkube.api.registry import Resource

Obj = dict[str, Any]


def apply(resource: Resource, obj: Obj) -> None:
    """Fill in the defaults of a custom object, in place. Metadata has none."""
    if resource.schema is not None:
        fill(resource.schema, obj)


def fill(schema: Mapping[str, Any], value: Any) -> None:
    """Defaults for one value and everything in it; nulls that a schema does not allow give way."""
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        for name, inner in properties.items():
            if name in value and value[name] is None and _refuses_null(inner):
                del value[name]
            if name not in value and "default" in inner:
                value[name] = copy.deepcopy(inner["default"])
            if name in value:
                fill(inner, value[name])
        extra = schema.get("additionalProperties")
        if isinstance(extra, Mapping):
            for name in value.keys() - properties.keys():
                fill(extra, value[name])
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for each in value:
            fill(schema["items"], each)


def _refuses_null(schema: Mapping[str, Any]) -> bool:
    typed = schema.get("type") or schema.get("x-kubernetes-int-or-string") or "default" in schema
    return bool(typed) and not schema.get("nullable")
