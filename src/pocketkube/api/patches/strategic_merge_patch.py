"""Strategic merge patch: a merge patch that knows which lists are merged by key, and its directives.

`$patch: replace|delete` in a map or a list item, `$retainKeys` in a map, `$deleteFromPrimitiveList/<field>`
and `$setElementOrder/<field>` beside a list. Order in the result: what the patch says, then what the patch's
own list says, then what was there before.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from pocketkube.api.patches.errors import PatchError
from pocketkube.api.patches.merge_types import MergeNode

Obj = dict[str, Any]
DIRECTIVE, RETAIN = "$patch", "$retainKeys"
DELETE_FROM, ORDER = "$deleteFromPrimitiveList", "$setElementOrder"


def apply(node: MergeNode, original: Obj, patch: Obj) -> Obj:
    """The patched object; neither argument is changed, but the result shares parts with both."""
    if DIRECTIVE in patch:
        return _directed(patch)
    result = _retained(original, patch)
    rest = {key: value for key, value in patch.items() if key != RETAIN}
    for key in [key for key in rest if key.startswith(ORDER)]:
        _merge_ordered(node, result, rest, key)
    for key, value in rest.items():
        if key.startswith(DELETE_FROM):
            _delete_from(result, _field(key, DELETE_FROM, "primitive list"), value)
        else:
            _merge_field(node, result, key, value)
    return result


def _merge_field(node: MergeNode, result: Obj, key: str, value: Any) -> None:
    if value is None:
        result.pop(key, None)
        return
    before = result.get(key)
    inner = node.child(key)
    if isinstance(before, dict) and isinstance(value, dict) and "replace" not in inner.patch:
        result[key] = apply(inner, before, value)
    elif isinstance(before, list) and isinstance(value, list) and "merge" in inner.patch:
        result[key] = _merge_lists(inner, before, value)
    elif isinstance(value, dict) and DIRECTIVE in value:
        result.pop(key, None)
    else:
        result[key] = _plain(value, nulls=type(before) is type(value))


def _directed(patch: Obj) -> Obj:
    if patch[DIRECTIVE] == "replace":
        return {key: value for key, value in patch.items() if key != DIRECTIVE}
    if patch[DIRECTIVE] == "delete":
        return {}
    raise PatchError(f"unknown patch type: {patch[DIRECTIVE]} in map: {patch}")


def _retained(original: Obj, patch: Obj) -> Obj:
    """The original without what `$retainKeys` does not name; everything in the patch must be named."""
    if RETAIN not in patch:
        return dict(original)
    names = patch[RETAIN]
    if not isinstance(names, list):
        raise PatchError("invalid patch format of retainKeys")
    known = {name for name in names if isinstance(name, str)}
    for key, value in patch.items():
        if key != RETAIN and value is not None and not key.startswith((DELETE_FROM, ORDER)) and key not in known:
            raise PatchError("invalid patch format of retainKeys")
    return {key: value for key, value in original.items() if key in known}


def _merge_ordered(node: MergeNode, result: Obj, rest: Obj, key: str) -> None:
    """A list with its `$setElementOrder`: contents merge as always, then the order is enforced."""
    order = rest.pop(key)
    name = _field(key, ORDER, "setElementOrder list")
    inner = node.child(name)
    before, given = result.get(name), rest.get(name)
    if not isinstance(order, list) or not isinstance(before or [], list) or not isinstance(given or [], list):
        raise PatchError("invalid patch format of setElementOrder list")
    if before is None and given is None:
        return
    _check_order(inner, given or [], order)
    if given is None:
        merged = before or []
    elif before is None:
        merged = _plain(given)
    else:
        merged = _merge_lists(inner, before, given) if "merge" in inner.patch else _plain(given)
    rest.pop(name, None)
    result[name] = _ordered(inner.merge_key, merged, order, before or [])


def _check_order(inner: MergeNode, given: list[Any], order: list[Any]) -> None:
    """What the patch adds must stand in the order list, in the same sequence."""
    wanted = [_identity(inner.merge_key, each) for each in given if not _has_directive(each)]
    listed = iter([_identity(inner.merge_key, each) for each in order])
    if order and not all(each in listed for each in wanted):
        raise PatchError(f"The order in patch list:\n{given}\n doesn't match {ORDER} list:\n{order}\n")


def _merge_lists(inner: MergeNode, before: list[Any], given: list[Any]) -> list[Any]:
    if not before and not given:
        return before
    if not any(isinstance(each, dict) for each in (*before, *given)):
        merged = _unique([*before, *given])
        return _ordered("", merged, given, before)
    if not all(isinstance(each, dict) for each in (*before, *given)):
        raise PatchError("cannot merge a list of maps with something else")
    key = inner.merge_key
    if not key:
        raise PatchError("cannot merge lists without merge key")
    merged, plain = _special_items(key, list(before), given)
    live = list(merged)
    places: dict[Any, int] = {}
    for index, old in enumerate(merged):
        places.setdefault(_comparable(old.get(key)), index)
    for each in plain:
        identity = _comparable(_identity(key, each))
        position = places.get(identity)
        if position is None:
            places[identity] = len(merged)
            merged.append(_plain(each))
        else:
            merged[position] = apply(inner.item, merged[position], each)
    return _ordered(key, merged, plain, live)


def _special_items(key: str, before: list[Any], given: list[Any]) -> tuple[list[Any], list[Any]]:
    """Items that are directives take effect first; answers what is left of both lists."""
    plain = [each for each in given if DIRECTIVE not in each]
    replace = False
    gone: set[Any] = set()
    for each in given:
        match each.get(DIRECTIVE):
            case None:
                continue
            case "delete":
                gone.add(_comparable(_identity(key, each)))
            case "replace":
                replace = True
            case "merge":
                raise PatchError("merging lists cannot yet be specified in the patch")
            case other:
                raise PatchError(f"unknown patch type: {other} in map: {each}")
    if replace:
        return plain, []
    return [old for old in before if _comparable(old.get(key)) not in gone] if gone else before, plain


def _ordered(key: str, merged: list[Any], order: list[Any], live: list[Any]) -> list[Any]:
    """Named items in the order given, the others in their old order, woven together by old positions."""
    rank = _ranks(key, order)
    place = _ranks(key, live)
    named = [each for each in merged if _rankable(key, each) in rank]
    named.sort(key=lambda each: rank[_rankable(key, each)])
    others = [each for each in merged if _rankable(key, each) not in rank]
    others.sort(key=lambda each: place.get(_rankable(key, each), len(live)))
    woven: list[Any] = []
    first, second = deque(named), deque(others)
    while first and second:
        left, right = place.get(_rankable(key, second[0])), place.get(_rankable(key, first[0]))
        woven.append((second if left is not None and right is not None and left < right else first).popleft())
    return [*woven, *first, *second]


def _ranks(key: str, items: list[Any]) -> dict[Any, int]:
    ranks: dict[Any, int] = {}
    for index, each in enumerate(items):
        ranks.setdefault(_rankable(key, each), index)
    return ranks


def _rankable(key: str, item: Any) -> Any:
    return _comparable(_identity(key, item))


def _comparable(value: Any) -> Any:
    """A value that can be looked up: equal where the given ones are, and true is not 1."""
    if isinstance(value, dict | list):
        return type(value).__name__, msgspec.json.encode(value, order="sorted")
    return isinstance(value, bool), value


def _identity(key: str, item: Any) -> Any:
    if not key:
        return item
    if not isinstance(item, dict):
        raise PatchError(f"expected a map, but received {item!r}")
    if key not in item:
        raise PatchError(f"map: {item} does not contain declared merge key: {key}")
    return item[key]


def _delete_from(result: Obj, name: str, gone: Any) -> None:
    before = result.get(name)
    if before is None:
        return
    if not isinstance(gone, list) or not isinstance(before, list):
        raise PatchError("invalid patch format of primitive list")
    removed = {_comparable(each) for each in gone}
    result[name] = [each for each in before if _comparable(each) not in removed]


def _field(key: str, prefix: str, what: str) -> str:
    directive, found, name = key.partition("/")
    if directive != prefix or not found:
        raise PatchError(f"invalid patch format of {what}")
    return name


def _has_directive(value: Any) -> bool:
    return isinstance(value, dict) and DIRECTIVE in value


def _plain(value: Any, *, nulls: bool = False) -> Any:
    """A value of the patch as it is stored: without directives and, unless it replaces its like, without nulls."""
    if isinstance(value, dict):
        return {
            key: _plain(inner, nulls=nulls)
            for key, inner in value.items()
            if not _has_directive(inner) and (inner is not None or nulls) and not key.startswith("$")
        }
    if isinstance(value, list):
        return [_plain(each, nulls=nulls) for each in value if not _has_directive(each)]
    return value


def _unique(items: list[Any]) -> list[Any]:
    found: dict[Any, Any] = {}
    for each in items:
        found.setdefault(_comparable(each), each)
    return list(found.values())
