"""Server-side apply: a configuration is merged into the object, and what its owner no longer names goes.

    merged = live + config
    pruned = merged - (what this manager applied last time, does not apply now, and nobody else manages)

Changing a field that another manager holds is a conflict unless forced; being forced takes the field away
from the others.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from pocketkube.api.patches import field_sets
from pocketkube.api.patches.errors import PatchError
from pocketkube.api.patches.field_sets import Paths
from pocketkube.api.patches.merge_types import MergeNode

Obj = dict[str, Any]


def check(node: MergeNode, config: Any, path: str = "") -> None:
    """Refuse what the layout does not know, and list items that cannot be told apart."""
    if isinstance(config, dict) and node.form in ("struct", "map", "any"):
        for name, value in config.items():
            here = f"{path}.{name}"
            if not node.knows(name):
                raise PatchError(f"{here}: field not declared in schema")
            check(node.child(name), value, here)
    elif isinstance(config, list) and node.form == "list":
        seen: set[str] = set()
        for index, item in enumerate(config):
            here = f"{path}[{index}]"
            if node.list_type != "atomic":
                here = path + _element(node, item, path, index, seen)
            check(node.item, item, here)
    elif config is not None and node.form in ("struct", "map", "list"):
        raise PatchError(f"{path}: expected {_FORMS[node.form]}, got &{{{config}}}")


_FORMS = {"struct": "map", "map": "map", "list": "list"}


def merge(node: MergeNode, live: Any, config: Any) -> Any:
    """The live value with the configuration on top; an explicit null stays null until the object is decoded."""
    if isinstance(live, dict) and isinstance(config, dict) and node.granular:
        merged = dict(live)
        for name, value in config.items():
            merged[name] = merge(node.child(name), live[name], value) if name in live else value
        return merged
    if isinstance(live, list) and isinstance(config, list) and node.form == "list" and node.list_type != "atomic":
        return _merge_lists(node, live, config)
    return config


def prune(node: MergeNode, merged: Obj, last: Paths, managed: Paths) -> Obj:
    """The merged object without what the manager has given up. `managed`: everything anybody manages now."""
    if not last:
        return merged
    last = field_sets.named_fields(node, last)
    everything = field_sets.named_fields(node, field_sets.of_object(node, merged))
    left = _set(node, field_sets.without(node, merged, last))
    unowned = everything - left - field_sets.named_fields(node, managed)
    left = _set(node, field_sets.without(node, merged, unowned))
    result = field_sets.without(node, merged, (everything - left) & last)
    return result if isinstance(result, dict) else {}


def _set(node: MergeNode, value: Any) -> Paths:
    return field_sets.named_fields(node, field_sets.of_object(node, value or {}))


def _merge_lists(node: MergeNode, live: list[Any], config: list[Any]) -> list[Any]:
    """Items of both: the configuration's order leads, live items keep their place between shared ones."""
    before = {field_sets.element(node, item): item for item in live}
    wanted = {field_sets.element(node, item): item for item in config}
    shared = deque(part for part in wanted if part in before)
    merged: list[Any] = []
    done: set[str] = set()
    right = deque(wanted)
    for item in live:
        part = field_sets.element(node, item)
        if part not in wanted:
            merged.append(item)
            continue
        if part in done:
            continue
        if shared and shared[0] != part:
            continue  # out of the configuration's order: it follows where the configuration has it
        while right:
            each = right.popleft()
            done.add(each)
            if shared and shared[0] == each:  # both are in the order of the configuration
                shared.popleft()
            merged.append(merge(node.item, before[each], wanted[each]) if each in before else wanted[each])
            if each == part:
                break
    merged.extend(merge(node.item, before[each], wanted[each]) if each in before else wanted[each] for each in right)
    return merged


def _element(node: MergeNode, item: Any, path: str, index: int, seen: set[str]) -> str:
    try:
        part = field_sets.element(node, item)
    except PatchError as problem:
        raise PatchError(f"{path}: element {index}: {problem}") from None
    if part in seen:
        raise PatchError(f"{path}: duplicate entries for key {field_sets.text((part,))}")
    seen.add(part)
    return field_sets.text((part,))
