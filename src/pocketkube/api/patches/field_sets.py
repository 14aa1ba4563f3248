"""Sets of fields: which parts of an object somebody manages, and how two objects differ.

A path is a tuple of elements as `managedFields` writes them: `f:name` for a field or map key, `k:{...}`
for an item of a list with keys, `v:...` for a member of a set. Whatever is one value (scalars, atomic lists
and maps) is one path. The rules are those of Kubernetes' structured merge; layouts say what merges how.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pocketkube.api.patches.errors import PatchError
from pocketkube.api.patches.merge_types import MergeNode

Path = tuple[str, ...]
Paths = set[Path]
_MISSING = object()


@dataclass(slots=True)
class Difference:
    """What is new, changed and gone between two objects."""

    added: Paths = field(default_factory=set)
    modified: Paths = field(default_factory=set)
    removed: Paths = field(default_factory=set)


def element(node: MergeNode, item: Any) -> str:
    """The path element of an item of a list that is a map or a set."""
    if node.list_type == "set":
        if isinstance(item, (dict, list)):
            raise PatchError("associative list without keys has an element that's not a scalar")
        return "v:" + _text(item)
    if not isinstance(item, dict):
        raise PatchError("associative list with keys may not have non-map elements")
    keys: dict[str, Any] = {}
    for name in sorted(node.keys):
        if name in item:
            keys[name] = item[name]
        elif name in node.key_defaults:
            keys[name] = node.key_defaults[name]
        else:
            named = " ".join(f'"{each}"' for each in node.keys)
            raise PatchError(
                f"associative list with keys has an element that omits all key fields [{named}] "
                "(and doesn't have default values for any key fields)"
            )
    return "k:" + _text(keys)


def of_object(node: MergeNode, value: Any) -> Paths:
    """Every path that a configuration contains."""
    found: Paths = set()
    _collect(node, value, (), found)
    return found


def compare(node: MergeNode, old: Any, new: Any) -> Difference:
    found = Difference()
    _compare(node, old, new, (), found)
    return found


def named_fields(node: MergeNode, paths: Paths) -> Paths:
    """The set with all enclosing fields that have a name of their own (not map keys or list items)."""
    found = set(paths)
    for path in paths:
        here = node
        for depth, part in enumerate(path[:-1]):
            if part.startswith("f:"):
                if here.form == "struct" and here.declares(part[2:]):
                    found.add(path[: depth + 1])
                here = here.child(part[2:])
            else:
                here = here.item
    return found


def without(node: MergeNode, value: Any, paths: Paths) -> Any:
    """The value less everything under the given paths; what becomes empty that way becomes null."""
    return _remove(node, value, _tree(paths))


def to_fields(paths: Iterable[Path]) -> dict[str, Any]:
    """`fieldsV1` of a set: a member with others below it is marked by a dot."""
    members = set(paths)
    root: dict[str, Any] = {}
    for path in sorted(members):
        level = root
        for depth, part in enumerate(path):
            level = level.setdefault(part, {})
            if depth < len(path) - 1 and path[: depth + 1] in members:
                level["."] = {}
    return root


def from_fields(fields: Any) -> Paths:
    """The set of a `fieldsV1`; raises PatchError for what is none."""
    found: Paths = set()
    _read(fields, (), found)
    return found


def text(path: Path) -> str:
    """A path for people: `.spec.containers[name="a"].image`."""
    parts = []
    for part in path:
        kind, rest = part[:2], part[2:]
        if kind == "k:":
            keys = msgspec.json.decode(rest)
            parts.append("[" + ",".join(f"{name}={_text(value)}" for name, value in keys.items()) + "]")
        elif kind == "v:":
            parts.append(f"[={rest}]")
        elif kind == "i:":
            parts.append(f"[{rest}]")
        else:
            parts.append(f".{rest}")
    return "".join(parts)


def _collect(node: MergeNode, value: Any, path: Path, found: Paths) -> None:
    if isinstance(value, dict) and node.granular:
        for name, inner in value.items():
            here = (*path, f"f:{name}")
            child = node.child(name)
            _collect(child, inner, here, found)
            if inner is None or inner == {} or not node.declares(name):
                found.add(here)
    elif isinstance(value, list) and node.form == "list" and node.list_type != "atomic":
        for item in value:
            here = (*path, element(node, item))
            _collect(node.item, item, here, found)
            found.add(here)
    elif path and value is not None:
        found.add(path)


def _compare(node: MergeNode, old: Any, new: Any, path: Path, found: Difference) -> None:
    if old is not _MISSING and new is not _MISSING and _same(old, new):
        return
    if node.granular and _is_map(old) and _is_map(new) and (old not in _EMPTY or new not in _EMPTY):
        _compare_maps(node, old, new, path, found)
    elif node.form == "list" and node.list_type != "atomic" and _is_list(old) and _is_list(new):
        if old in _EMPTY and new in _EMPTY:
            _leaf(old, new, path, found)
            return
        _compare_lists(node, old, new, path, found)
    else:
        _leaf(old, new, path, found)
        return
    if path:
        if old is _MISSING:
            found.added.add(path)
        elif new is _MISSING:
            found.removed.add(path)


_EMPTY: tuple[Any, ...] = (_MISSING, None, {}, [])


def _leaf(old: Any, new: Any, path: Path, found: Difference) -> None:
    if old is _MISSING:
        found.added.add(path)
    elif new is _MISSING:
        found.removed.add(path)
    else:
        found.modified.add(path)


def _compare_maps(node: MergeNode, old: Any, new: Any, path: Path, found: Difference) -> None:
    before: Mapping[str, Any] = old if isinstance(old, dict) else {}
    after: Mapping[str, Any] = new if isinstance(new, dict) else {}
    for name in before.keys() | after.keys():
        child = node.child(name)
        left, right = before.get(name, _MISSING), after.get(name, _MISSING)
        if child.always:  # an absent one is really there, and empty
            empty: Any = {} if child.form == "struct" else None
            left = empty if left is _MISSING and old is not _MISSING else left
            right = empty if right is _MISSING and new is not _MISSING else right
        if left is not right:
            _compare(child, left, right, (*path, f"f:{name}"), found)


def _compare_lists(node: MergeNode, old: Any, new: Any, path: Path, found: Difference) -> None:
    before, after = _by_element(node, old), _by_element(node, new)
    for part in before.keys() | after.keys():
        left, right = before.get(part, []), after.get(part, [])
        here = (*path, part)
        if len(left) <= 1 and len(right) <= 1:
            _compare(node.item, left[0] if left else _MISSING, right[0] if right else _MISSING, here, found)
        elif left != right:  # duplicates are one value
            (found.modified if left and right else found.added if right else found.removed).add(here)


def _by_element(node: MergeNode, items: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for item in items if isinstance(items, list) else []:
        found.setdefault(element(node, item), []).append(item)
    return found


def _is_map(value: Any) -> bool:
    return value is _MISSING or value is None or isinstance(value, dict)


def _is_list(value: Any) -> bool:
    return value is _MISSING or value is None or isinstance(value, list)


def _same(old: Any, new: Any) -> bool:
    """Equality that tells true from 1; containers are compared quickly first."""
    return bool(old == new) and (type(old) is type(new) or not (isinstance(old, bool) or isinstance(new, bool)))


def _tree(paths: Paths) -> dict[str, Any]:
    """Paths as nested dicts; a member is None, for whatever lies under it goes too."""
    root: dict[str, Any] = {}
    for path in sorted(paths, key=len):
        level = root
        for part in path[:-1]:
            inner = level.setdefault(part, {})
            if inner is None:
                break
            level = inner
        else:
            level[path[-1]] = None
    return root


def _remove(node: MergeNode, value: Any, tree: dict[str, Any]) -> Any:
    if isinstance(value, dict) and node.granular:
        kept: dict[str, Any] = {}
        for name, inner in value.items():
            below = tree.get(f"f:{name}", _MISSING)
            if below is None:
                continue
            kept[name] = inner if below is _MISSING else _remove(node.child(name), inner, below)
        return kept or None
    if isinstance(value, list) and node.form == "list" and node.list_type != "atomic":
        items = []
        for item in value:
            below = tree.get(element(node, item), _MISSING)
            if below is None:
                continue
            items.append(item if below is _MISSING else _remove(node.item, item, below))
        return items or None
    return None if isinstance(value, (dict, list)) else value


def _read(fields: Any, path: Path, found: Paths) -> None:
    if not isinstance(fields, dict):
        raise PatchError("fieldsV1 is not an object")
    if path and (not fields or "." in fields):
        found.add(path)
    for part, inner in fields.items():
        if part == ".":
            continue
        if part[:2] not in ("f:", "k:", "v:", "i:"):
            raise PatchError(f"unknown path element {part!r}")
        _read(inner, (*path, part), found)


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
