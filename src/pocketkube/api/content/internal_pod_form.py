"""A pod as kube-apiserver holds it inside, for the differences that its refusals show.

The internal form has Go's field names in Go's order and writes out what is empty; the table of its types is generated
(`internal_pod_form.json`).
"""

from __future__ import annotations

import difflib
import functools
import json
import pathlib
from typing import Any

Obj = dict[str, Any]

_ZEROS: dict[str, Any] = {"string": "", "bool": False, "resource.Quantity": "0", "intstr.IntOrString": 0}
_MOST_LINES = 2_000
# Fields of a pod's spec that stand in its security context inside the server.
_MOVED = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")


def difference(kind: str, old: Obj, new: Obj) -> str:
    """A unified difference of two values of an internal type."""
    before, after = (_lines(kind, value) for value in (old, new))
    if _changed_lines(before, after) > _MOST_LINES:
        return f"@@ more than {_MOST_LINES} lines differ @@\n"
    return "".join(line for line in difflib.unified_diff(before, after) if not line.startswith(("--- ", "+++ ")))


def _changed_lines(before: list[str], after: list[str]) -> int:
    """Lines that are left without the common beginning and end: comparing them takes longer than linear."""
    pairs = enumerate(zip(before, after, strict=False))
    start = next((index for index, (left, right) in pairs if left != right), min(len(before), len(after)))
    ends = enumerate(zip(reversed(before[start:]), reversed(after[start:]), strict=False))
    shorter = min(len(before), len(after)) - start
    end = next((index for index, (left, right) in ends if left != right), shorter)
    return max(len(before), len(after)) - start - end


def _lines(kind: str, value: Obj) -> list[str]:
    if kind == "PodSpec":
        inside = {name: value[name] for name in _MOVED if name in value}
        value = {**value, "securityContext": (value.get("securityContext") or {}) | inside}
    text = json.dumps(_inside(kind, value), indent=1, ensure_ascii=False)
    for plain, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(plain, escaped)
    return [line + "\n" for line in text.split("\n")]


def _inside(kind: str, value: Any) -> Any:
    fields = _table().get(kind)
    if fields is not None:
        return _struct(fields, value or {})
    if kind.startswith("*"):
        return None if value is None else _inside(kind[1:], value)
    if kind.startswith("[]"):
        return [_inside(kind[2:], item) for item in value] if value else None
    if kind.startswith("map["):
        inner = kind.partition("]")[2]
        return {key: _inside(inner, value[key]) for key in sorted(value)} if value else None
    return _ZEROS.get(kind, 0) if value is None else value


def _struct(fields: list[list[str]], value: Obj) -> Obj:
    # The names differ from those on the wire in nothing but case.
    given = {name.lower(): inner for name, inner in value.items()}
    result: Obj = {}
    for name, kind in fields:
        if name.startswith("+"):
            result |= _struct(_table()[kind], value)
        else:
            result[name] = _inside(kind, given.get(name.lower()))
    return result


@functools.cache
def _table() -> dict[str, list[list[str]]]:
    data: dict[str, list[list[str]]] = json.loads(
        pathlib.Path(__file__).with_name("internal_pod_form.json").read_bytes()
    )
    return data
