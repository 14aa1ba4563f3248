"""Points and spans of time as values of CEL: `timestamp("...")`, `duration("1h30m")`, their parts and their sums."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from pocketkube.api.expressions.functions import EvaluationError, Function, is_int, no_overload, type_name

_PIECE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(h|ms|m|s|us|µs|ns)")
_SPAN = re.compile(rf"[+-]?(?:0|(?:{_PIECE.pattern})+)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_OFFSET = re.compile(r"([+-]?)(\d\d):(\d\d)")
_SUNDAY = 7


def timestamp(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if is_int(value):
        return _bounded(lambda: datetime.fromtimestamp(value, UTC))
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        return _bounded(lambda: datetime.fromisoformat(value.upper()).astimezone(UTC))
    raise EvaluationError(f"type conversion error from '{type_name(value)}' to 'google.protobuf.Timestamp'")


def duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str) or not _SPAN.fullmatch(value):
        raise EvaluationError(f"type conversion error from '{type_name(value)}' to 'google.protobuf.Duration'")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PIECE.findall(value))
    return _bounded(lambda: timedelta(seconds=-seconds if value.startswith("-") else seconds))


def is_time(value: Any) -> bool:
    return isinstance(value, datetime | timedelta)


def added(left: Any, right: Any) -> Any:
    """A sum of which at most one part is a point in time."""
    if not (is_time(left) and is_time(right)) or (isinstance(left, datetime) and isinstance(right, datetime)):
        raise no_overload("_+_", left, right)
    return _bounded(lambda: left + right)


def subtracted(left: Any, right: Any) -> Any:
    if not (is_time(left) and is_time(right)) or (isinstance(left, timedelta) and isinstance(right, datetime)):
        raise no_overload("_-_", left, right)
    return _bounded(lambda: left - right)


_T = TypeVar("_T")


def _bounded(make: Callable[[], _T]) -> _T:
    try:
        return make()
    except (OverflowError, ValueError, OSError) as problem:
        raise EvaluationError(f"timestamp overflow: {problem}") from None


def _zone(name: Any) -> Any:
    if match := _OFFSET.fullmatch(name if isinstance(name, str) else ""):
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return timezone(-offset if match[1] == "-" else offset)
    try:
        return ZoneInfo(str(name))
    except (LookupError, OSError, ValueError) as problem:
        raise EvaluationError(f"unknown time zone {name}") from problem


def _part(name: str, of_moment: Function, of_span: Function | None = None) -> Function:
    def part(value: Any, zone: Any = "UTC") -> int:
        if isinstance(value, datetime):
            return int(of_moment(value.astimezone(_zone(zone))))
        if isinstance(value, timedelta) and of_span is not None:
            return int(of_span(value.total_seconds()))
        raise no_overload(name, value)

    return part


_PARTS: dict[str, Function] = {
    "getFullYear": _part("getFullYear", lambda moment: moment.year),
    "getMonth": _part("getMonth", lambda moment: moment.month - 1),
    "getDate": _part("getDate", lambda moment: moment.day),
    "getDayOfMonth": _part("getDayOfMonth", lambda moment: moment.day - 1),
    "getDayOfWeek": _part("getDayOfWeek", lambda moment: moment.isoweekday() % _SUNDAY),
    "getDayOfYear": _part("getDayOfYear", lambda moment: moment.timetuple().tm_yday - 1),
    "getHours": _part("getHours", lambda moment: moment.hour, lambda span: span / 3600),
    "getMinutes": _part("getMinutes", lambda moment: moment.minute, lambda span: span / 60),
    "getSeconds": _part("getSeconds", lambda moment: moment.second, lambda span: span),
    "getMilliseconds": _part(
        "getMilliseconds", lambda moment: moment.microsecond // 1000, lambda span: round(span * 1000) % 1000
    ),
}
NAMES = frozenset(_PARTS)
METHODS: dict[tuple[str, int], Function] = {(name, count): part for name, part in _PARTS.items() for count in (1, 2)}
FUNCTIONS: dict[tuple[str, int], Function] = {("timestamp", 1): timestamp, ("duration", 1): duration}
