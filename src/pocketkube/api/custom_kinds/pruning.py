"""Pruning: fields that a structural schema does not name are removed, unless it preserves them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pocketkube.api import limits
from pocketkube.api.custom_kinds.places import ROOT, Place
from pocketkube.api.registry import Resource

Obj = dict[str, Any]
PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
_ROOT = ("apiVersion", "kind", "metadata")


def pruned(resource: Resource, obj: Obj) -> tuple[Obj, list[str]]:
    """The object without unknown fields, and the paths of the first of those (`spec.foo`)."""
    unknown: list[str] = []
    schema = resource.schema or {PRESERVE: True}
    kept = _object(schema, obj, ROOT, unknown, root=True)
    return kept, unknown


def unknown(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Paths within a value that its schema does not know."""
    found: list[str] = []
    _walk(schema, value, ROOT, found)
    return found


def _walk(schema: Mapping[str, Any], value: Any, place: Place, unknown: list[str]) -> Any:
    if isinstance(value, dict):
        return _object(schema, value, place, unknown, root=bool(schema.get(EMBEDDED)))
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, Mapping):
            return [_walk(items, each, place.item(index), unknown) for index, each in enumerate(value)]
    return value


def _object(schema: Mapping[str, Any], value: Obj, place: Place, unknown: list[str], *, root: bool) -> Obj:
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    preserve = bool(schema.get(PRESERVE))
    kept: Obj = {}
    for name, inner in value.items():
        if root and name in _ROOT:
            kept[name] = inner
        elif name in properties:
            kept[name] = _walk(properties[name], inner, place.field(name), unknown)
        elif isinstance(extra, Mapping):
            kept[name] = _walk(extra, inner, place.field(name), unknown)
        elif extra is True or preserve:
            kept[name] = inner
        elif len(unknown) < limits.MAX_STRICT_ERRORS:
            unknown.append(str(place.field(name)))
    return kept
