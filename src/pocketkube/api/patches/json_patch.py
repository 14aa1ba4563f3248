"""JSON patch on decoded JSON, with the freedoms and refusals that the Kubernetes API gives.

Laxer than RFC 6902, as the library behind kube-apiserver is: `replace` of a member that is not there adds it, `copy`
of one gives null, an absent `value` is null, list indexes may count from the end.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import msgspec

from pocketkube.api import limits
from pocketkube.api.patches.errors import PatchError

_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")
_INDEX = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)


class TestFailed(PatchError):
    """A `test` operation found another value."""


def apply(target: Any, patch: Any) -> Any:
    """The patched document; the given one stays as it is."""
    if not isinstance(patch, list):
        raise PatchError("cannot unmarshal object into Go value of type jsonpatch.Patch")
    document = copy.deepcopy(target)
    copied = _Copied()
    for operation in patch:
        document = _step(document, operation, copied)
    return document


class _Copied:
    """How much `copy` has added so far: thirty of them can double a document thirty times."""

    def __init__(self) -> None:
        self._bytes = 0

    def copy(self, value: Any) -> Any:
        encoded = msgspec.json.encode(value)
        self._bytes += len(encoded)
        if self._bytes > limits.MAX_COPIED_BYTES:
            raise PatchError(
                f"Unable to complete the copy, the accumulated size increase of copy is {self._bytes}, exceeding the "
                f"limit {limits.MAX_COPIED_BYTES}"
            )
        return msgspec.json.decode(encoded)


def _step(document: Any, operation: Any, copied: _Copied) -> Any:
    name = operation.get("op") if isinstance(operation, dict) else None
    if name not in _OPERATIONS:
        raise PatchError(f"Unexpected kind: {name or 'unknown'}")
    if operation.get("path") == "" and name in ("replace", "test"):
        return _whole(document, name, copy.deepcopy(operation.get("value")))
    _in_place(document, name, operation, copied)
    return document


def _whole(document: Any, name: str, value: Any) -> Any:
    if name == "replace" and not isinstance(value, dict | list):
        raise PatchError("replace operation value must be object or array: invalid state detected")
    if name == "test" and not equal(document, value):
        raise TestFailed("testing value  failed: test failed")
    return value if name == "replace" else document


def _in_place(document: Any, name: str, operation: dict[str, Any], copied: _Copied) -> None:
    path = operation.get("path")
    if name in ("move", "copy"):
        holder, key = _place(document, operation, "from")
        value = _remove(holder, key, "move", key) if name == "move" else copied.copy(_get(holder, key))
        _add(*_place(document, operation, "path"), value, name, path)
        return
    holder, key = _place(document, operation, "path")
    value = copy.deepcopy(operation.get("value"))
    match name:
        case "add":
            _add(holder, key, value, name, path)
        case "remove":
            _remove(holder, key, name, path)
        case "replace":
            _replace(holder, key, value, path)
        case _:
            if not equal(_get(holder, key), value):
                raise TestFailed(f"testing value {path} failed: test failed")


def equal(left: Any, right: Any) -> bool:
    """Equality of JSON values: true is not 1, but 1 is 1.0."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(equal(a, b) for a, b in zip(left, right, strict=True))
    return (type(left) in (int, float) and type(right) in (int, float) and left == right) or (
        type(left) is type(right) and left == right
    )


Holder = dict[str, Any] | list[Any]
_MISSING = {
    ("add", "path"): 'doc is missing path: "{}"',
    ("remove", "path"): 'doc is missing path: "{}"',
    ("replace", "path"): "doc is missing path: {}",
    ("test", "path"): "is missing path: {}",
    ("move", "from"): "doc is missing from path: {}",
    ("copy", "from"): "doc is missing from path: {}",
    ("move", "path"): "doc is missing destination path: {}",
    ("copy", "path"): "doc is missing destination path: {}",
}


def _place(document: Any, operation: dict[str, Any], name: str) -> tuple[Holder, str]:
    """The object or list that a pointer leads into, and the name of the place in it."""
    text = operation.get(name)
    if not isinstance(text, str):
        raise PatchError(f"{operation['op']} operation failed to decode {name}: missing value")
    # What stands before the first slash is not looked at.
    parts = [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]
    holder = document if parts else None
    for part in parts[:-1]:
        holder = _find(holder, part)
    if not isinstance(holder, dict | list):
        why = _MISSING[operation["op"], name].format(text)
        raise PatchError(f"{operation['op']} operation does not apply: {why}: missing value")
    return holder, parts[-1]


def _find(holder: Any, part: str) -> Any:
    try:
        return _get(holder, part) if isinstance(holder, dict | list) else None
    except PatchError:
        return None


def _get(holder: Holder, key: str) -> Any:
    """A member of an object that is not there is null; an item of a list that is not there is an error."""
    return holder.get(key) if isinstance(holder, dict) else holder[_index(holder, key)]


def _add(holder: Holder, key: str, value: Any, name: str, path: Any) -> None:
    if isinstance(holder, dict):
        holder[key] = value
    elif key == "-":
        holder.append(value)
    else:
        try:
            holder.insert(_index(holder, key, end=True), value)
        except PatchError as problem:
            said = "error while adding value during copy" if name == "copy" else f"error in {name} for path: '{path}'"
            raise PatchError(f"{said}: {problem}") from None


def _remove(holder: Holder, key: str, name: str, path: Any) -> Any:
    failed = f"error in {name} for path: '{path}'"
    if isinstance(holder, dict):
        if key not in holder:
            raise PatchError(f"{failed}: Unable to remove nonexistent key: {key}: missing value")
        return holder.pop(key)
    try:
        return holder.pop(_index(holder, key))
    except PatchError as problem:
        raise PatchError(f"{failed}: {problem}") from None


def _replace(holder: Holder, key: str, value: Any, path: Any) -> None:
    if isinstance(holder, dict):
        holder[key] = value
        return
    try:
        holder[_index(holder, key)] = value
    except PatchError:
        raise PatchError(f"replace operation does not apply: doc is missing key: {path}: missing value") from None


def _index(holder: list[Any], part: str, *, end: bool = False) -> int:
    if not _INDEX.fullmatch(part):
        raise PatchError(f"value was not a proper array index: '{part}'")
    index = int(part)
    if not -len(holder) <= index < len(holder) + end:
        raise PatchError(f"Unable to access invalid index: {index}: invalid index referenced")
    return index + len(holder) if index < 0 else index
