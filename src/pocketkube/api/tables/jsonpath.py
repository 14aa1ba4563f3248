"""The JSONPath of printer columns: `.spec.gpu`, `.status.conditions[?(@.type=="Ready")].status`, `.items[*].name`.

A path is compiled once into steps and then only walks dicts and lists. What the grammar of Kubernetes
does not allow in printer columns (unions, recursion, scripts) is refused when the column is registered.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

Step = Callable[[Any], Iterator[Any]]


class PathError(ValueError):
    """A path that cannot be used; the text says why."""


def find(path: str, value: Any) -> list[Any]:
    """Everything the path leads to, in order."""
    found = [value]
    for step in parse(path):
        found = [result for each in found for result in step(each)]
    return found


@functools.lru_cache(maxsize=1024)
def parse(path: str) -> tuple[Step, ...]:
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[Step] = []
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise PathError(f"{path!r} is not a simple JSONPath such as .spec.name")
        steps.append(_step(match, path))
        at = match.end()
    return tuple(steps)


_STEP = re.compile(
    r"""
      \.(?P<name>(?:\\.|[^.\[\]\\])+)              # .name, with \. for a dot in it
    | \[(?P<index>-?[0-9]+)\]                      # [0]
    | \[(?P<from>-?[0-9]*):(?P<to>-?[0-9]*)\]      # [1:3]
    | \[(?P<all>\*)\]                              # [*]
    | \[(?P<quote>['"])(?P<key>.*?)(?P=quote)\]    # ['name']
    | \[\?\(\s*@\.(?P<field>[^=!<>\s)]+)\s*(?P<operator>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[^)\s]+)\s*\)\]
    """,
    re.VERBOSE,
)
_LITERALS: dict[str, Any] = {"true": True, "false": False, "null": None}


def _step(match: re.Match[str], path: str) -> Step:
    found = match.groupdict()
    if found["name"] == "*" or found["all"]:
        return _every
    if found["name"] is not None:
        return functools.partial(_member, re.sub(r"\\(.)", r"\1", found["name"]))
    if found["key"] is not None:
        return functools.partial(_member, found["key"])
    if found["index"] is not None:
        return functools.partial(_item, int(found["index"]))
    if found["field"] is not None:
        return functools.partial(_matching, found["field"], found["operator"] == "==", _literal(found["value"], path))
    start, end = (int(found[name]) if found[name] else None for name in ("from", "to"))
    return functools.partial(_slice, start, end)


def _literal(text: str, path: str) -> Any:
    if text[0] in "\"'":
        return text[1:-1]
    if text in _LITERALS:
        return _LITERALS[text]
    try:
        return float(text)
    except ValueError:
        raise PathError(f"{path!r} compares with {text}, which is neither a quoted text nor a number") from None


def _member(name: str, value: Any) -> Iterator[Any]:
    if isinstance(value, dict) and name in value:
        yield value[name]


def _item(index: int, value: Any) -> Iterator[Any]:
    if isinstance(value, list) and -len(value) <= index < len(value):
        yield value[index]


def _slice(start: int | None, end: int | None, value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value[start:end]


def _every(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()


def _matching(field: str, equal: bool, wanted: Any, value: Any) -> Iterator[Any]:  # noqa: FBT001  bound by position
    for each in _every(value):
        inner: Any = each
        for name in field.split("."):
            inner = inner.get(name) if isinstance(inner, dict) else None
        if inner is not None and (inner == wanted) == equal:
            yield each
