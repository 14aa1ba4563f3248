"""The functions of CEL that Kubernetes users write: strings, lists, conversions and quantities.

Every function checks its arguments; what does not fit is an evaluation error, never a Python one.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import string
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from apportion.apis import quantity
from apportion.apis.quantity import QuantityError
from pocketkube.api.expressions.parser import UInt

Function = Callable[..., Any]

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_TO_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_TO_UPPER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
_DECIMAL = re.compile(r"[+-]?[0-9]{1,19}")
_MOST_COMPARISONS = 200_000
LONGEST_TEXT = 1024 * 1024


class EvaluationError(ValueError):
    """An expression that cannot be evaluated for the given values."""


class NoOverloadError(EvaluationError):
    """A function that does not take values of these types."""


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
    return _equal(left, right, itertools.count())


def _equal(left: Any, right: Any, comparisons: Iterator[int]) -> bool:
    # Values that share their parts can be small and still have a number of parts that is exponential.
    if next(comparisons) > _MOST_COMPARISONS:
        raise EvaluationError("operation cancelled: actual cost limit exceeded")
    if isinstance(left, bool) or isinstance(right, bool):
        return isinstance(left, bool) and isinstance(right, bool) and left == right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(
            _equal(one, other, comparisons) for one, other in zip(left, right, strict=True)
        )
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(
            _equal(value, right[key], comparisons) for key, value in left.items()
        )
    return bool(left == right)


def size(value: Any) -> int:
    if isinstance(value, str | bytes | list | dict):
        return len(value)
    raise no_function("size", value)


def no_overload(name: str, *values: Any) -> NoOverloadError:
    """For operators and methods."""
    del name, values
    return NoOverloadError("no such overload")


def no_function(name: str, *values: Any) -> NoOverloadError:
    """For functions."""
    types = f"({', '.join(type_name(value) for value in values)})" if name != "size" else ""
    return NoOverloadError(f"no such overload: {name}{types}")


def type_name(value: Any) -> str:
    if value is None:
        return "null_type"
    return next((name for kind, name in _TYPE_NAMES if isinstance(value, kind)), "optional_type")


_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "bool"),
    (UInt, "uint"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
    (list, "list"),
    (dict, "map"),
    (datetime, "google.protobuf.Timestamp"),
    (timedelta, "google.protobuf.Duration"),
    (Quantity, "kubernetes.Quantity"),
)


@functools.lru_cache(maxsize=512)
def pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.ASCII)
    except (re.error, OverflowError, RecursionError) as problem:
        raise EvaluationError(f"error parsing regexp: {problem}") from None


def _texts(kinds: str) -> Callable[[Function], Function]:
    """Guards a method of strings: `ssi` takes a string, another string and a number."""

    def guard(function: Function) -> Function:
        @functools.wraps(function)
        def guarded(*values: Any) -> Any:
            for kind, value in zip(kinds, values, strict=False):
                if not (is_int(value) if kind == "i" else isinstance(value, str)):
                    raise no_overload(function.__name__, *values)
            return function(*values)

        return guarded

    return guard


def _at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise EvaluationError(f"index out of range: {index}")
    return text[index : index + 1]


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= len(text) or not 0 <= end <= len(text):
        raise EvaluationError(f"index out of range: {start if not 0 <= start <= len(text) else end}")
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
    result = text.replace(old, new, limit)
    if len(result) > LONGEST_TEXT:
        raise EvaluationError("text is too long")
    return result


def _join(values: Any, separator: str = "") -> str:
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise no_overload("join", values, separator)
    return separator.join(values)


def _index_of(where: Any, what: Any, start: Any = 0) -> int:
    if isinstance(where, str) and isinstance(what, str) and is_int(start):
        if start < 0:
            raise EvaluationError(f"index out of range: {start}")
        return where.find(what, start)
    if isinstance(where, list):
        return next((index for index, each in enumerate(where) if equal(each, what)), -1)
    raise no_overload("indexOf", where, what)


def _last_index_of(where: Any, what: Any, last: Any = None) -> int:
    if isinstance(where, str) and isinstance(what, str):
        last = len(where) if last is None else last
        if not is_int(last) or not 0 <= last <= len(where):
            raise EvaluationError(f"index out of range: {last}")
        return where.rfind(what, 0, last + len(what))
    if isinstance(where, list):
        return next((index for index in reversed(range(len(where))) if equal(where[index], what)), -1)
    raise no_overload("lastIndexOf", where, what)


def _find_all(text: str, regex: str, limit: int = -1) -> list[str]:
    found = (each[0] for each in pattern(regex).finditer(text))
    return list(itertools.islice(found, limit) if limit >= 0 else found)


def _extreme(name: str, choose: Callable[..., Any]) -> Function:
    def extreme(values: Any) -> Any:
        if not isinstance(values, list) or not _comparable(values):
            raise no_overload(name, values)
        if not values:
            raise EvaluationError(f"{name} called on empty list")
        return choose(values)

    return extreme


def _comparable(values: list[Any]) -> bool:
    return _all(values, is_number) or any(_all(values, kind) for kind in (str, bool, bytes, datetime, timedelta))


def _sum(values: Any) -> Any:
    if not isinstance(values, list) or not (_all(values, is_number) or _all(values, timedelta)):
        raise no_overload("sum", values)
    total = sum(values[1:], start=values[0]) if values else 0
    return checked_int(total) if is_int(total) else total


def _is_sorted(values: Any) -> bool:
    if not isinstance(values, list) or not _comparable(values):
        raise no_overload("isSorted", values)
    return all(left <= right for left, right in itertools.pairwise(values))


def _all(values: list[Any], kind: Any) -> bool:
    return all(isinstance(each, kind) if isinstance(kind, type) else kind(each) for each in values)


def _to_int(value: Any) -> int:
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1_000_000_000)
    if is_number(value):
        return checked_int(int(value) if math.isfinite(value) else _INT_MAX + 1)
    if isinstance(value, str) and _DECIMAL.fullmatch(value) and _INT_MIN <= int(value) <= _INT_MAX:
        return int(value)
    raise EvaluationError(f"type conversion error from '{type_name(value)}' to 'int'")


def _to_uint(value: Any) -> UInt:
    found = _to_int(value)
    if found < 0:
        raise EvaluationError("unsigned integer overflow")
    return UInt(found)


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, str | bytes):
        return value.encode() if isinstance(value, str) else value
    raise no_overload("bytes", value)


def _to_double(value: Any) -> float:
    try:
        if isinstance(value, str) or is_number(value):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise EvaluationError(f"type conversion error from '{type_name(value)}' to 'double'")


def to_string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        whole, _, fraction = value.isoformat().removesuffix("+00:00").partition(".")
        return f"{whole}.{fraction.rstrip('0')}Z" if fraction else f"{whole}Z"
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None
    if isinstance(value, str | int | float):
        return f"{value:g}" if isinstance(value, float) else str(int(value)) if is_int(value) else str(value)
    raise no_function("string", value)


def _to_bool(value: Any) -> bool:
    truths = {"true": True, "True": True, "TRUE": True, "t": True, "1": True}
    truths |= {"false": False, "False": False, "FALSE": False, "f": False, "0": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in truths:
        return truths[value]
    raise EvaluationError(f"type conversion error from '{type_name(value)}' to 'bool'")


_NO_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def _quantity(text: Any) -> Quantity:
    if not isinstance(text, str):
        raise no_function("quantity", text)
    try:
        return Quantity(quantity.parse(text))
    except QuantityError:
        raise EvaluationError(_NO_QUANTITY) from None


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


_matches = _texts("ss")(lambda text, regex: pattern(regex).search(text) is not None)

# Name and number of arguments, the target of a method included.
FUNCTIONS: dict[tuple[str, int], Function] = {
    ("size", 1): size,
    ("int", 1): _to_int,
    ("uint", 1): _to_uint,
    ("bytes", 1): _to_bytes,
    ("double", 1): _to_double,
    ("string", 1): to_string,
    ("bool", 1): _to_bool,
    ("dyn", 1): lambda value: value,
    ("quantity", 1): _quantity,
    ("isQuantity", 1): _is_quantity,
    ("sign", 1): lambda value: (_amount(value) > 0) - (_amount(value) < 0),
    ("matches", 2): _matches,
}
METHODS: dict[tuple[str, int], Function] = {
    ("size", 1): size,
    ("contains", 2): _texts("ss")(lambda text, part: str(part) in text),
    ("startsWith", 2): _texts("ss")(lambda text, part: text.startswith(str(part))),
    ("endsWith", 2): _texts("ss")(lambda text, part: text.endswith(str(part))),
    ("matches", 2): _matches,
    ("find", 2): _texts("ss")(lambda text, regex: (pattern(regex).search(text) or [""])[0]),
    ("findAll", 2): _texts("ssi")(_find_all),
    ("findAll", 3): _texts("ssi")(_find_all),
    ("charAt", 2): _texts("si")(_at),
    ("lowerAscii", 1): _texts("s")(lambda text: text.translate(_TO_LOWER)),
    ("upperAscii", 1): _texts("s")(lambda text: text.translate(_TO_UPPER)),
    ("trim", 1): _texts("s")(str.strip),
    ("replace", 3): _texts("sssi")(_replace),
    ("replace", 4): _texts("sssi")(_replace),
    ("split", 2): _texts("ssi")(_split),
    ("split", 3): _texts("ssi")(_split),
    ("substring", 2): _texts("sii")(_substring),
    ("substring", 3): _texts("sii")(_substring),
    ("join", 1): _join,
    ("join", 2): _join,
    ("indexOf", 2): _index_of,
    ("indexOf", 3): _index_of,
    ("lastIndexOf", 2): _last_index_of,
    ("lastIndexOf", 3): _last_index_of,
    ("min", 1): _extreme("min", min),
    ("max", 1): _extreme("max", max),
    ("sum", 1): _sum,
    ("isSorted", 1): _is_sorted,
    ("isGreaterThan", 2): _amounts("isGreaterThan", lambda left, right: left > right),
    ("isLessThan", 2): _amounts("isLessThan", lambda left, right: left < right),
    ("compareTo", 2): _amounts("compareTo", lambda left, right: (left > right) - (left < right)),
    ("add", 2): _amounts("add", lambda left, right: Quantity(left + right)),
    ("sub", 2): _amounts("sub", lambda left, right: Quantity(left - right)),
    ("isInteger", 1): lambda value: _amount(value).denominator == 1,
    ("asInteger", 1): _as_integer,
    ("asApproximateFloat", 1): lambda value: float(_amount(value)),
}
