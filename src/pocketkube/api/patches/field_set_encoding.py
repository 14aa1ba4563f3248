"""Field sets in their wire form: every write keeps `managedFields` up to date without unpacking them.

`{}` is a member without others below it; a member with others below it has a dot. Trees are never changed
in place: a new one shares everything but the nodes on the way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pocketkube.api.patches.field_sets import Path, element
from pocketkube.api.patches.merge_types import MergeNode

Tree = dict[str, Any]
DOT = "."


def of_new(node: MergeNode, obj: dict[str, Any]) -> Tree:
    """Everything that an object adds to the empty object of its kind."""
    return _added_to_map(node, obj, there=True)


def with_paths(tree: Tree, paths: Iterable[Path]) -> Tree:
    """The set with more members."""
    return _with(tree, _branches(paths))


def without_paths(tree: Tree, paths: Iterable[Path]) -> Tree:
    """The set without some members; what becomes empty goes too."""
    return _without(tree, _branches(paths))


class _Branch:
    """What some paths have in common: whether one of them ends here, and how the others go on."""

    __slots__ = ("below", "ends")

    def __init__(self) -> None:
        self.ends = False
        self.below: dict[str, _Branch] = {}


def _branches(paths: Iterable[Path]) -> _Branch:
    root = _Branch()
    for path in paths:
        branch = root
        for part in path:
            following = branch.below.get(part)
            if following is None:
                following = branch.below[part] = _Branch()
            branch = following
        branch.ends = True
    return root


def _with(tree: Tree, branch: _Branch) -> Tree:
    if not branch.below:
        return tree
    result = dict(tree)
    for part, below in branch.below.items():
        inner = tree.get(part)
        member = below.ends or (inner is not None and (not inner or DOT in inner))
        changed = _with(inner or {}, below)
        if member and changed and DOT not in changed:
            changed = {DOT: {}, **changed}
        result[part] = changed
    return result


def _without(tree: Tree, branch: _Branch) -> Tree:
    result = dict(tree)
    for part, below in branch.below.items():
        inner = tree.get(part)
        if inner is None:
            continue
        member = (not inner or DOT in inner) and not below.ends
        left = _without(inner, below)
        left.pop(DOT, None)
        if left:
            result[part] = {DOT: {}, **left} if member else left
        elif member:
            result[part] = {}
        else:
            del result[part]
    return result


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
