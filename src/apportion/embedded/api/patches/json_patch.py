"""JSON patch (RFC 6902) on decoded JSON, with the refusals that the Kubernetes API gives."""

from __future__ import annotations

import copy
from typing import Any

from apportion.embedded.api.patches.errors import PatchError

MAX_OPERATIONS = 10_000
_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")


class TestFailed(PatchError):
    """A `test` operation found another value."""


def apply(target: Any, patch: Any) -> Any:
    """The patched document; the given one stays as it is."""
    if not isinstance(patch, list):
        raise PatchError("cannot unmarshal object into Go value of type jsonpatch.Patch")
    document = copy.deepcopy(target)
    for operation in patch:
        document = _step(document, operation)
    return document


def _step(document: Any, operation: Any) -> Any:
    if not isinstance(operation, dict):
        raise PatchError(f"an operation must be an object, not {operation!r}")
    name = operation.get("op")
    if name not in _OPERATIONS:
        raise PatchError(f"Unexpected kind: {name}")
    path = _pointer(operation, "path")
    match name:
        case "add":
            return _add(document, path, copy.deepcopy(_value(operation)))
        case "remove":
            return _remove(document, path)[0]
        case "replace":
            return _replace(document, path, copy.deepcopy(_value(operation)))
        case "move":
            source = _pointer(operation, "from")
            if path[: len(source)] == source and len(path) > len(source):
                raise PatchError(f"move: {_text(source)} cannot move into its own child {_text(path)}")
            document, value = _remove(document, source)
            return _add(document, path, value)
        case "copy":
            return _add(document, path, copy.deepcopy(_get(document, _pointer(operation, "from"))))
        case _:
            if not equal(_get(document, path, missing=None), _value(operation)):
                raise TestFailed(f"testing value {_text(path)} failed: test failed")
            return document


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


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise PatchError(f"{operation['op']} operation is missing required field value: {operation.get('path')}")
    return operation["value"]


def _pointer(operation: dict[str, Any], name: str) -> list[str]:
    text = operation.get(name)
    if not isinstance(text, str):
        raise PatchError(f"{operation['op']} operation is missing required field {name}")
    if text and not text.startswith("/"):
        raise PatchError(f"{operation['op']} operation does not apply: {name} {text!r} must begin with a slash")
    parts = text.split("/")[1:]
    for part in parts:
        if "~" in part.replace("~0", "").replace("~1", ""):
            raise PatchError(f"{name} {text!r} has an escape other than ~0 and ~1")
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]


_REFUSE = object()


def _get(document: Any, path: list[str], *, missing: Any = _REFUSE) -> Any:
    value = document
    for position, part in enumerate(path):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list):
            value = value[_index(value, part, path)]
        elif missing is not _REFUSE and position == len(path) - 1 and isinstance(value, dict):
            return missing
        else:
            raise PatchError(f"the server cannot find {_text(path)}: missing path")
    return value


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    holder = _get(document, path[:-1])
    if isinstance(holder, dict):
        holder[path[-1]] = value
    elif isinstance(holder, list):
        holder.insert(len(holder) if path[-1] == "-" else _index(holder, path[-1], path, end=True), value)
    else:
        raise PatchError(f"add operation does not apply: doc is missing path: {_text(path)}: missing value")
    return document


def _remove(document: Any, path: list[str]) -> tuple[Any, Any]:
    if not path:
        return None, document
    holder = _get(document, path[:-1])
    if isinstance(holder, dict) and path[-1] in holder:
        return document, holder.pop(path[-1])
    if isinstance(holder, list):
        return document, holder.pop(_index(holder, path[-1], path))
    raise PatchError(f"remove operation does not apply: doc is missing path: {_text(path)}: missing value")


def _replace(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    holder = _get(document, path[:-1])
    if isinstance(holder, dict) and path[-1] in holder:
        holder[path[-1]] = value
    elif isinstance(holder, list):
        holder[_index(holder, path[-1], path)] = value
    else:
        raise PatchError(f"replace operation does not apply: doc is missing key: {_text(path)}: missing value")
    return document


def _index(holder: list[Any], part: str, path: list[str], *, end: bool = False) -> int:
    if not part.isascii() or not part.isdigit() or (part != "0" and part.startswith("0")) or len(part) > 9:  # noqa: PLR2004
        raise PatchError(f"{_text(path)}: {part!r} is no index of a list")
    index = int(part)
    if index > len(holder) or (index == len(holder) and not end):
        raise PatchError(f"Unable to access invalid index: {index}: invalid index referenced")
    return index


def _text(path: list[str]) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)
