"""The functions of CEL that Kubernetes users write: strings, lists, conversions and quantities.

Every function checks its arguments; what does not fit is an evaluation error, never a Python one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from apportion.apis import quantity
from apportion.apis.quantity import QuantityError
from pocketkube.api.regular_expressions import PatternError, compiled

Function = Callable[..., Any]

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
LONGEST_TEXT = 1024 * 1024


class EvaluationError(ValueError):
    """An expression that cannot be evaluated for the given values."""


class Quantity:
    """A Kubernetes quantity as a value of the language."""

    __slots__ = ("amount",)

    def __init__(self, amount: Fraction) -> None:
        self.amount = amount

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.amount == other.amount

    def __hash__(self) -> int:
        return hash(self.amount)


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def checked_int(value: int) -> int:
    if not _INT_MIN <= value <= _INT_MAX:
        raise EvaluationError("integer overflow")
    return value


def equal(left: Any, right: Any) -> bool:
    """Equality across types: numbers by value, everything else only within its own type."""
    if isinstance(left, bool) or isinstance(right, bool):
        return isinstance(left, bool) and isinstance(right, bool) and left == right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(value, right[key]) for key, value in left.items())
    return bool(left == right)


def size(value: Any) -> int:
    if isinstance(value, str | list | dict):
        return len(value)
    raise no_overload("size", value)


def no_overload(name: str, *values: Any) -> EvaluationError:
    types = ", ".join(type_name(value) for value in values)
    return EvaluationError(f"found no matching overload for '{name}' applied to '({types})'")


def type_name(value: Any) -> str:
    if value is None:
        return "null_type"
    return next((name for kind, name in _TYPE_NAMES if isinstance(value, kind)), "optional_type")


_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "bool"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (list, "list"),
    (dict, "map"),
    (datetime, "timestamp"),
    (timedelta, "duration"),
    (Quantity, "quantity"),
)


def pattern(text: str) -> Any:
    try:
        return compiled(text)
    except PatternError as problem:
        raise EvaluationError(f"error parsing regexp: {problem}") from None


def _texts(name: str) -> Callable[[Function], Function]:
    """Guards a method of strings whose first arguments must be strings."""

    def guard(function: Function) -> Function:
        @functools.wraps(function)
        def guarded(*values: Any) -> Any:
            if not isinstance(values[0], str) or any(not isinstance(each, str | int) for each in values[1:]):
                raise no_overload(name, *values)
            return function(*values)

        return guarded

    return guard


def _at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise EvaluationError(f"index out of range: {index}")
    return text[index : index + 1]


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not (is_int(start) and is_int(end) and 0 <= start <= end <= len(text)):
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not separator:
        return list(text)
    return text.split(separator, limit - 1 if limit > 0 else -1)


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old) if limit < 0 else min(limit, text.count(old))
    if len(text) + count * (len(new) - len(old)) > LONGEST_TEXT:
        raise EvaluationError("text is too long")
    return text.replace(old, new, limit)


def _join(values: Any, separator: str = "") -> str:
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise no_overload("join", values, separator)
    if sum(map(len, values)) + len(separator) * len(values) > LONGEST_TEXT:
        raise EvaluationError("text is too long")
    return separator.join(values)


def _index_of(where: Any, what: Any) -> int:
    if isinstance(where, str) and isinstance(what, str):
        return where.find(what)
    if isinstance(where, list):
        return next((index for index, each in enumerate(where) if equal(each, what)), -1)
    raise no_overload("indexOf", where, what)


def _last_index_of(where: Any, what: Any) -> int:
    if isinstance(where, str) and isinstance(what, str):
        return where.rfind(what)
    if isinstance(where, list):
        return next((index for index in reversed(range(len(where))) if equal(where[index], what)), -1)
    raise no_overload("lastIndexOf", where, what)


def _extreme(name: str, choose: Callable[..., Any]) -> Function:
    def extreme(values: Any) -> Any:
        if not isinstance(values, list) or not values or not (_all(values, is_number) or _all(values, str)):
            raise no_overload(name, values)
        return choose(values)

    return extreme


def _sum(values: Any) -> Any:
    if not isinstance(values, list) or not _all(values, is_number):
        raise no_overload("sum", values)
    total = sum(values)
    return checked_int(total) if is_int(total) else total


def _is_sorted(values: Any) -> bool:
    if not isinstance(values, list) or not (_all(values, is_number) or _all(values, str)):
        raise no_overload("isSorted", values)
    return all(left <= right for left, right in itertools.pairwise(values))


def _all(values: list[Any], kind: Any) -> bool:
    return all(isinstance(each, kind) if isinstance(kind, type) else kind(each) for each in values)


def _to_int(value: Any) -> int:
    try:
        if isinstance(value, datetime):
            return int(value.timestamp())
        if isinstance(value, str) or is_number(value):
            return checked_int(int(value))
    except (ValueError, OverflowError):
        pass
    raise EvaluationError(f"type conversion error from '{type_name(value)}' to 'int'")


def _to_uint(value: Any) -> int:
    found = _to_int(value)
    if found < 0:
        raise EvaluationError("unsigned integer overflow")
    return found


def _to_double(value: Any) -> float:
    try:
        if isinstance(value, str) or is_number(value):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise EvaluationError(f"type conversion error from '{type_name(value)}' to 'double'")


def _to_string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, str | int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    raise no_overload("string", value)


def _to_bool(value: Any) -> bool:
    truths = {"true": True, "True": True, "TRUE": True, "t": True, "1": True}
    truths |= {"false": False, "False": False, "FALSE": False, "f": False, "0": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in truths:
        return truths[value]
    raise EvaluationError(f"type conversion error from '{type_name(value)}' to 'bool'")


def _quantity(text: Any) -> Quantity:
    if not isinstance(text, str):
        raise no_overload("quantity", text)
    try:
        return Quantity(quantity.parse(text))
    except QuantityError as problem:
        raise EvaluationError(str(problem)) from None


def _is_quantity(text: Any) -> bool:
    try:
        return isinstance(_quantity(text), Quantity)
    except EvaluationError:
        return False


def _amounts(name: str, function: Callable[[Fraction, Fraction], Any]) -> Function:
    def compare(left: Any, right: Any) -> Any:
        right = Quantity(Fraction(right)) if is_int(right) else right
        if not isinstance(left, Quantity) or not isinstance(right, Quantity):
            raise no_overload(name, left, right)
        return function(left.amount, right.amount)

    return compare


def _amount(value: Any) -> Fraction:
    if not isinstance(value, Quantity):
        raise no_overload("quantity", value)
    return value.amount


def _as_integer(value: Any) -> int:
    amount = _amount(value)
    if amount.denominator != 1:
        raise EvaluationError("cannot convert value to integer")
    return checked_int(int(amount))


# Name and number of arguments, the target of a method included.
FUNCTIONS: dict[tuple[str, int], Function] = {
    ("size", 1): size,
    ("int", 1): _to_int,
    ("uint", 1): _to_uint,
    ("double", 1): _to_double,
    ("string", 1): _to_string,
    ("bool", 1): _to_bool,
    ("dyn", 1): lambda value: value,
    ("quantity", 1): _quantity,
    ("isQuantity", 1): _is_quantity,
}
METHODS: dict[tuple[str, int], Function] = {
    ("size", 1): size,
    ("contains", 2): _texts("contains")(lambda text, part: str(part) in text),
    ("startsWith", 2): _texts("startsWith")(lambda text, part: text.startswith(str(part))),
    ("endsWith", 2): _texts("endsWith")(lambda text, part: text.endswith(str(part))),
    ("matches", 2): _texts("matches")(lambda text, regex: pattern(regex).search(text) is not None),
    ("find", 2): _texts("find")(lambda text, regex: (pattern(regex).search(text) or [""])[0]),
    ("findAll", 2): _texts("findAll")(lambda text, regex: [each[0] for each in pattern(regex).finditer(text)]),
    ("charAt", 2): _texts("charAt")(_at),
    ("lowerAscii", 1): _texts("lowerAscii")(lambda text: text.lower() if text.isascii() else text),
    ("upperAscii", 1): _texts("upperAscii")(lambda text: text.upper() if text.isascii() else text),
    ("trim", 1): _texts("trim")(str.strip),
    ("replace", 3): _texts("replace")(_replace),
    ("replace", 4): _texts("replace")(_replace),
    ("split", 2): _texts("split")(_split),
    ("split", 3): _texts("split")(_split),
    ("substring", 2): _texts("substring")(_substring),
    ("substring", 3): _texts("substring")(_substring),
    ("join", 1): _join,
    ("join", 2): _join,
    ("indexOf", 2): _index_of,
    ("lastIndexOf", 2): _last_index_of,
    ("min", 1): _extreme("min", min),
    ("max", 1): _extreme("max", max),
    ("sum", 1): _sum,
    ("isSorted", 1): _is_sorted,
    ("isGreaterThan", 2): _amounts("isGreaterThan", lambda left, right: left > right),
    ("isLessThan", 2): _amounts("isLessThan", lambda left, right: left < right),
    ("compareTo", 2): _amounts("compareTo", lambda left, right: (left > right) - (left < right)),
    ("add", 2): _amounts("add", lambda left, right: Quantity(left + right)),
    ("sub", 2): _amounts("sub", lambda left, right: Quantity(left - right)),
    ("sign", 1): lambda value: (_amount(value) > 0) - (_amount(value) < 0),
    ("isInteger", 1): lambda value: _amount(value).denominator == 1,
    ("asInteger", 1): _as_integer,
    ("asApproximateFloat", 1): lambda value: float(_amount(value)),
}
