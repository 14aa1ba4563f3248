"""Defaults of a structural schema, filled in wherever their parent exists."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from apportion.embedded.api.registry import Resource

Obj = dict[str, Any]


def apply(resource: Resource, obj: Obj) -> None:
    """Fill in the defaults of a custom object, in place. Metadata has none."""
    if resource.schema is not None:
        fill(resource.schema, obj)


def fill(schema: Mapping[str, Any], value: Any) -> None:
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        for name, inner in properties.items():
            if name in value and value[name] is None and "default" in inner and not inner.get("nullable"):
                del value[name]  # a null where none is allowed gives way to the default
            elif name in value and value[name] is None and not inner.get("nullable") and "default" not in inner:
                if inner.get("type") or inner.get("x-kubernetes-int-or-string"):
                    del value[name]
            if name not in value and "default" in inner:
                value[name] = copy.deepcopy(inner["default"])
            if name in value:
                fill(inner, value[name])
        extra = schema.get("additionalProperties")
        if isinstance(extra, Mapping):
            for name, inner_value in value.items():
                if name not in properties:
                    fill(extra, inner_value)
    elif isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, Mapping):
            for each in value:
                fill(items, each)
