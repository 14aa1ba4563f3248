"""The difference of two JSON documents as a JSON patch (RFC 6902).

Admission answers with a patch, so unknown fields cannot be lost. Lists of equal length are compared element by
element; other lists are replaced, which is exact because the server applies the patch to the document that it sent.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Operation: TypeAlias = dict[str, Any]


def difference(old: Any, new: Any, path: str = "") -> list[Operation]:
    """The operations that turn `old` into `new`; none if they are equal."""
    if isinstance(old, dict) and isinstance(new, dict):
        return _maps(old, new, path)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            operation
            for index, (before, after) in enumerate(zip(old, new, strict=True))
            for operation in difference(before, after, f"{path}/{index}")
        ]
    if _same(old, new):
        return []
    return [{"op": "replace", "path": path, "value": new}]


def _maps(old: dict[str, Any], new: dict[str, Any], path: str) -> list[Operation]:
    operations: list[Operation] = []
    for key, before in old.items():
        where = f"{path}/{_escaped(key)}"
        if key in new:
            operations += difference(before, new[key], where)
        else:
            operations.append({"op": "remove", "path": where})
    operations += [
        {"op": "add", "path": f"{path}/{_escaped(key)}", "value": after} for key, after in new.items() if key not in old
    ]
    return operations


def _same(old: Any, new: Any) -> bool:
    # Python says True == 1 == 1.0; JSON does not.
    if type(old) is not type(new):
        return False
    if isinstance(old, list):
        return len(old) == len(new) and all(map(_same, old, new))
    return bool(old == new)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
