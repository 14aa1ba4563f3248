"""The operators of CEL. Types are not mixed: what does not fit is an evaluation error."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from pocketkube.api.expressions import timestamps
from pocketkube.api.expressions.functions import EvaluationError, checked_int, equal, is_int, is_number, no_overload
from pocketkube.api.expressions.parser import UInt

_UINT_END = 2**64


_ORDERED = (str, bytes, bool, datetime, timedelta)


def _contains(item: Any, where: Any) -> bool:
    if isinstance(where, list):
        return any(equal(item, each) for each in where)
    if isinstance(where, dict):
        return isinstance(item, str | int | float) and item in where
    raise no_overload("@in", item, where)


def _compared(name: str, holds: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(left: Any, right: Any) -> bool:
        same = any(isinstance(left, kind) and isinstance(right, kind) for kind in _ORDERED)
        if not same and not (is_number(left) and is_number(right)):
            raise no_overload(name, left, right)
        return holds(left, right)

    return compare


def _added(left: Any, right: Any) -> Any:
    if is_number(left) and is_number(right):
        return _number(left, right, left + right)
    if timestamps.is_time(left):
        return timestamps.added(left, right)
    for kind in (str, list, bytes):
        if isinstance(left, kind) and isinstance(right, kind):
            return left + right  # type: ignore[operator]
    raise no_overload("_+_", left, right)


def _arithmetic(name: str, make: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compute(left: Any, right: Any) -> Any:
        if not (is_number(left) and is_number(right)) or isinstance(left, float) != isinstance(right, float):
            raise no_overload(name, left, right)
        try:
            return _number(left, right, make(left, right))
        except ZeroDivisionError:
            raise EvaluationError("division by zero" if name == "_/_" else "modulus by zero") from None

    return compute


def _subtracted(left: Any, right: Any) -> Any:
    if timestamps.is_time(left):
        return timestamps.subtracted(left, right)
    return _arithmetic("_-_", lambda first, second: first - second)(left, right)


def _divided(left: Any, right: Any) -> Any:
    if isinstance(left, float):
        return left / right if right else math.nan if not left else math.copysign(math.inf, left)
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: Any, right: Any) -> Any:
    return left - right * _divided(left, right)


def _number(left: Any, right: Any, value: Any) -> Any:
    if isinstance(left, float) != isinstance(right, float):
        raise no_overload("_+_", left, right)
    if isinstance(left, UInt):
        if not 0 <= value < _UINT_END:
            raise EvaluationError("unsigned integer overflow")
        return UInt(value)
    return checked_int(value) if is_int(value) else value


def _negated(value: Any) -> Any:
    if not is_number(value):
        raise no_overload("-_", value)
    return checked_int(-value) if is_int(value) else -value


def _inverted(value: Any) -> bool:
    if not isinstance(value, bool):
        raise no_overload("!_", value)
    return not value


OPERATORS: dict[str, Callable[..., Any]] = {
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    "<": _compared("_<_", lambda left, right: left < right),
    "<=": _compared("_<=_", lambda left, right: left <= right),
    ">": _compared("_>_", lambda left, right: left > right),
    ">=": _compared("_>=_", lambda left, right: left >= right),
    "in": _contains,
    "+": _added,
    "-": _subtracted,
    "*": _arithmetic("_*_", lambda left, right: left * right),
    "/": _arithmetic("_/_", _divided),
    "%": _arithmetic("_%_", _remainder),
    "!_": _inverted,
    "-_": _negated,
}
