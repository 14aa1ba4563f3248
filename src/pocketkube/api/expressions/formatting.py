"""Texts made of values: `'%s has %d'.format([object.metadata.name, 3])` and `strings.quote`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from pocketkube.api.expressions.functions import (
    LONGEST_TEXT,
    EvaluationError,
    Function,
    is_int,
    is_number,
    no_overload,
    to_string,
    type_name,
)

_CLAUSE = re.compile(r"%(?:\.([0-9]+))?([%a-zA-Z]?)")
_MOST_DIGITS = 100
_MOST_PARTS = 10_000
_QUOTED = {
    **{character: f"\\{letter}" for character, letter in zip("\a\b\f\n\r\t\v", "abfnrtv", strict=True)},
    **{character: f"\\{character}" for character in '\\"'},
}


def _format(text: Any, values: Any) -> str:
    if not isinstance(text, str) or not isinstance(values, list):
        raise no_overload("format", text, values)
    position = 0

    def clause(match: re.Match[str]) -> str:
        nonlocal position
        precision, verb = match[1], match[2]
        if verb == "%" and precision is None:
            return "%"
        if verb not in _VERBS:
            raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')
        if position >= len(values):
            raise EvaluationError(f"index {position} out of range")
        position += 1
        shown: Callable[[Any, int | None], str] = _VERBS[verb]
        return shown(values[position - 1], min(int(precision), _MOST_DIGITS) if precision else None)

    found = _CLAUSE.sub(clause, text)
    if len(found) > LONGEST_TEXT:
        raise EvaluationError("text is too long")
    return found


def problems(text: str, types: list[str]) -> Iterator[tuple[int | None, str]]:
    """What is wrong with a format, and with the types of its values: the position of the value, or None."""
    position = 0
    for precision, verb in _CLAUSE.findall(text):
        if verb == "%" and not precision:
            continue
        if verb not in _VERBS:
            yield None, f'could not parse formatting clause: unrecognized formatting clause "{verb}"'
            return
        if position >= len(types):
            yield None, f"index {position} out of range"
            return
        allowed, why = _ALLOWED.get(verb, ((), ""))
        if allowed and types[position] not in (*allowed, "dyn", "!error!"):
            yield position, f"error during formatting: {why}, was given {types[position]}"
        position += 1


def _shown(value: Any, _precision: int | None = None) -> str:
    return _text(value, itertools.count())


def _text(value: Any, parts: Iterator[int]) -> str:
    if next(parts) > _MOST_PARTS:
        raise EvaluationError("operation cancelled: actual cost limit exceeded")
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{', '.join(_inner(each, parts) for each in value)}]"
    if isinstance(value, dict):
        entries = sorted((_inner(key, parts), _inner(each, parts)) for key, each in value.items())
        return "{" + ", ".join(f"{key}:{each}" for key, each in entries) + "}"
    if isinstance(value, str | bool | int | float | bytes | datetime | timedelta):
        return to_string(value)
    raise EvaluationError(f"could not convert argument {type_name(value)!r} to string")


def _inner(value: Any, parts: Iterator[int]) -> str:
    return _quote(value) if isinstance(value, str) else _text(value, parts)


def _decimal(value: Any, _precision: int | None) -> str:
    if not is_number(value):
        raise _unfit("d", value)
    return str(value)


def _fixed(value: Any, precision: int | None) -> str:
    if not is_number(value):
        raise _unfit("f", value)
    return f"{float(value):.{6 if precision is None else precision}f}"


def _scientific(value: Any, precision: int | None) -> str:
    if not is_number(value):
        raise _unfit("e", value)
    return f"{float(value):.{6 if precision is None else precision}e}"


def _binary(value: Any, _precision: int | None) -> str:
    if not isinstance(value, bool) and not is_int(value):
        raise _unfit("b", value)
    return format(int(value), "b")


def _hex(spec: str) -> Any:
    def shown(value: Any, _precision: int | None) -> str:
        if is_int(value):
            return format(value, spec)
        if isinstance(value, str | bytes):
            found = (value.encode() if isinstance(value, str) else value).hex()
            return found.upper() if spec == "X" else found
        raise _unfit("x", value)

    return shown


def _octal(value: Any, _precision: int | None) -> str:
    if not is_int(value):
        raise _unfit("o", value)
    return format(value, "o")


def _unfit(verb: str, value: Any) -> EvaluationError:
    return EvaluationError(f"error during formatting: {_ALLOWED[verb][1]}, was given {type_name(value)}")


_HEX = (("int", "uint", "string", "bytes"), "only integers, byte buffers, and strings can be formatted as hex")
_ALLOWED: dict[str, tuple[tuple[str, ...], str]] = {
    "d": (("int", "uint"), "decimal clause can only be used on integers"),
    "f": (("double", "int", "uint"), "fixed-point clause can only be used on doubles"),
    "e": (("double", "int", "uint"), "scientific clause can only be used on doubles"),
    "b": (("int", "uint", "bool"), "only integers and bools can be formatted as binary"),
    "x": _HEX,
    "X": _HEX,
    "o": (("int", "uint"), "octal clause can only be used on integers"),
}
_VERBS: dict[str, Any] = {
    "s": _shown,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "x": _hex("x"),
    "X": _hex("X"),
    "o": _octal,
}


def _quote(text: Any) -> str:
    if not isinstance(text, str):
        raise no_overload("strings.quote", text)
    return '"' + "".join(_QUOTED.get(character, character) for character in text) + '"'


FUNCTIONS: dict[tuple[str, int], Function] = {("strings.quote", 1): _quote}
METHODS: dict[tuple[str, int], Function] = {("format", 2): _format}
