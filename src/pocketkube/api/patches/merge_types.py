"""How the parts of an object merge: which lists are maps or sets, which maps are one value.

One tree of `MergeNode`s per kind, made on first use: from the models and the generated merge rules for built-in
kinds, from the structural schema for custom ones. Strategic merge patch, server-side apply and ownership of
fields all walk objects along it.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from pocketkube.api.content import field_models
from pocketkube.api.content.field_models import Type
from pocketkube.api.registry import Resource

ListType = Literal["atomic", "map", "set"]


@dataclass(frozen=True)
class MergeNode:
    """One place of an object. `fields` are known names; `of` is what a map or list holds."""

    form: Literal["leaf", "struct", "map", "list", "any"] = "leaf"
    of: MergeNode | None = None
    atomic: bool = False
    list_type: ListType = "atomic"
    keys: tuple[str, ...] = ()
    key_defaults: Mapping[str, Any] = field(default_factory=dict)
    patch: frozenset[str] = frozenset()
    merge_key: str = ""
    always: bool = False  # Go writes this field even when it is empty: an empty one is no addition

    def child(self, name: str) -> MergeNode:
        """The node of a field of a struct or of an entry of a map."""
        del name
        return self.of or ANY

    def knows(self, name: str) -> bool:
        """Whether a field of this name can exist."""
        del name
        return self.form != "leaf"

    def declares(self, name: str) -> bool:
        """Whether the type itself has a field of this name, rather than a map an entry."""
        del name
        return False

    @property
    def item(self) -> MergeNode:
        return self.of or ANY

    @property
    def granular(self) -> bool:
        """Whether the entries of a map are owned one by one."""
        return self.form in ("struct", "map", "any") and not self.atomic


ANY = MergeNode("any")
LEAF = MergeNode("leaf")


@dataclass(frozen=True)
class _Struct(MergeNode):
    """A type of the models."""

    model: str = ""

    def child(self, name: str) -> MergeNode:
        return _children(self.model).get(name, ANY)

    def knows(self, name: str) -> bool:
        return name in _children(self.model)

    def declares(self, name: str) -> bool:
        return name in _children(self.model)


@dataclass(frozen=True)
class _Schema(MergeNode):
    """An object of a structural schema."""

    children: Mapping[str, MergeNode] = field(default_factory=dict)
    open: bool = False

    def child(self, name: str) -> MergeNode:
        return self.children.get(name) or self.of or ANY

    def knows(self, name: str) -> bool:
        return self.open or self.of is not None or name in self.children

    def declares(self, name: str) -> bool:
        return name in self.children


def of_resource(resource: Resource) -> MergeNode:
    """The layout of a whole object."""
    if resource.model is not None:
        return _of_model(resource.model)
    return _of_custom(_Identity(resource.schema or {}))


@functools.cache
def _of_model(model: str) -> MergeNode:
    return _Struct("struct", model=model, atomic=bool(_rules().get(model, {}).get("", {}).get("atomic")))


@functools.cache
def _children(model: str) -> dict[str, MergeNode]:
    rules = _rules().get(model, {})
    found = {}
    for name, each in field_models.shape(model).fields.items():
        value_struct = each.type.form == "struct" and not each.pointer and not each.omit_zero
        found[name] = _node(each.type, rules.get(name, {}), always=not each.omit or value_struct)
    return found


def _node(kind: Type, rule: Mapping[str, Any], *, always: bool = False) -> MergeNode:
    patch, merge_key = frozenset(rule.get("patch", ())), rule.get("key", "")
    match kind.form:
        case "struct":
            atomic = bool(rule.get("atomic")) or _of_model(kind.name).atomic
            return _Struct("struct", model=kind.name, atomic=atomic, patch=patch, always=always)
        case "map":
            return MergeNode(
                "map",
                _node(kind.of or field_models.ANY, {}),
                atomic=bool(rule.get("atomic")),
                patch=patch,
                always=always,
            )
        case "list":
            return MergeNode(
                "list",
                _node(kind.of or field_models.ANY, {}),
                list_type=rule.get("list", "atomic"),
                keys=tuple(rule.get("keys", ())),
                key_defaults=rule.get("defaults", {}),
                patch=patch,
                merge_key=merge_key,
                always=always,
            )
        case "any":
            return MergeNode("any", patch=patch, always=always)
        case _:
            return MergeNode("leaf", patch=patch, always=always)


class _Identity:
    """A schema as a cache key: the same dict, not an equal one."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.schema is self.schema


@functools.lru_cache(maxsize=256)
def _of_custom(identity: _Identity) -> MergeNode:
    root = _of_schema(identity.schema)
    children = dict(root.children) if isinstance(root, _Schema) else {}
    children |= _type_and_metadata()
    open_ = isinstance(root, _Schema) and root.open
    return _Schema("struct", children=children, open=open_)


def _type_and_metadata() -> dict[str, MergeNode]:
    return {"apiVersion": LEAF, "kind": LEAF, "metadata": _of_model("meta_v1.ObjectMeta")}


def _of_schema(schema: Mapping[str, Any]) -> MergeNode:
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    atomic = schema.get("x-kubernetes-map-type") == "atomic"
    match schema.get("type"):
        case "object":
            children = {name: _of_schema(inner) for name, inner in properties.items()}
            if schema.get("x-kubernetes-embedded-resource"):
                children |= _type_and_metadata()
            of = _of_schema(extra) if isinstance(extra, Mapping) else None
            return _Schema("struct", of=of, atomic=atomic, children=children, open=preserve or extra is True)
        case "array":
            items = schema.get("items")
            keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
            item = items if isinstance(items, Mapping) else {}
            described = item.get("properties") or {}
            return MergeNode(
                "list",
                _of_schema(item),
                list_type=schema.get("x-kubernetes-list-type") or "atomic",
                keys=keys,
                key_defaults={key: described[key]["default"] for key in keys if "default" in described.get(key, {})},
            )
        case None if preserve:
            return ANY
        case _:
            return LEAF


@functools.cache
def _rules() -> dict[str, dict[str, dict[str, Any]]]:
    data = pathlib.Path(__file__).with_name("merge_rules.json").read_bytes()
    rules: dict[str, dict[str, dict[str, Any]]] = msgspec.json.decode(data)
    return rules
