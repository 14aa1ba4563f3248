"""Field sets in their wire form: every write keeps `managedFields` up to date without unpacking them.

`{}` is a member without others below it; a member with others below it has a dot. Trees are never changed
in place: a new one shares everything but the nodes on the way.
"""

from __future__ import annotations

from typing import Any

from pocketkube.api.patches.field_sets import Path, element
from pocketkube.api.patches.merge_types import MergeNode

Tree = dict[str, Any]
DOT = "."


def of_new(node: MergeNode, obj: dict[str, Any]) -> Tree:
    """Everything that an object adds to the empty object of its kind."""
    return _added_to_map(node, obj, there=True)


def with_path(tree: Tree, path: Path) -> Tree:
    """The set with one more member."""
    part, rest = path[0], path[1:]
    inner = tree.get(part)
    if not rest:
        if inner is None:
            return {**tree, part: {}}
        return tree if not inner or DOT in inner else {**tree, part: {DOT: {}, **inner}}
    if inner is None:
        return {**tree, part: with_path({}, rest)}
    changed = with_path(inner or {DOT: {}}, rest)
    return tree if changed is inner else {**tree, part: changed}


def without_path(tree: Tree, path: Path) -> Tree:
    """The set without one member; what becomes empty goes too."""
    part, rest = path[0], path[1:]
    inner = tree.get(part)
    if inner is None:
        return tree
    if not rest:
        left = {key: value for key, value in inner.items() if key != DOT} if inner else {}
        return _replaced(tree, part, left or None)
    changed = without_path(inner, rest)
    if changed is inner:
        return tree
    if changed.keys() == {DOT}:
        return _replaced(tree, part, {})
    return _replaced(tree, part, changed or None)


def _replaced(tree: Tree, part: str, inner: Tree | None) -> Tree:
    if inner is not None:
        return {**tree, part: inner}
    return {key: value for key, value in tree.items() if key != part}


def _added(node: MergeNode, value: Any, *, there: bool) -> Tree | None:
    """The tree of one value, or None if the empty object has it already (`there`: it has an empty one)."""
    if isinstance(value, dict) and value and node.granular:
        tree = _added_to_map(node, value, there=there)
        return tree if tree or not there else None
    if isinstance(value, list) and value and node.form == "list" and node.list_type != "atomic":
        return _added_to_list(node, value, there=there)
    if there and (value is None or (value == {} and node.form == "struct")):
        return None
    return {}


def _added_to_map(node: MergeNode, value: dict[str, Any], *, there: bool) -> Tree:
    tree: Tree = {} if there else {DOT: {}}
    for name, inner in value.items():
        child = node.child(name)
        added = _added(child, inner, there=there and child.always)
        if added is not None:
            tree[f"f:{name}"] = added
    return tree


def _added_to_list(node: MergeNode, items: list[Any], *, there: bool) -> Tree:
    tree: Tree = {} if there else {DOT: {}}
    for item in items:
        part = element(node, item)
        if part in tree:
            tree[part] = {}  # duplicates are one value
        else:
            added = _added(node.item, item, there=False)
            tree[part] = added if added is not None else {}
    return tree
