"""From plain data to checked cases; errors name the field, the value and the fix."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from apportion.apis.errors import InputError
from apportion.core.queues.fair_shares import UNLIMITED, QueueDemand
from apportion.lab.fairness.numbers import LARGEST_EXPONENT, MOST_DIGITS, WrittenNumber

_UNITS = "in milli-GPU, milli-CPU or bytes"


@dataclass(frozen=True)
class Case:
    total: int
    queues: tuple[QueueDemand, ...]
    field: str = ""  # of the case in its file, with a point at the end; empty if it is the only one


def parse_all(raw: Any) -> list[Case]:
    """Raises InputError for the first case that is invalid."""
    if isinstance(raw, list):
        if not raw:
            raise InputError("cases", raw, "has no case: write at least one with total and queues")
        return [_case(each, f"cases[{number}]") for number, each in enumerate(raw)]
    return [_case(raw, "")]


def _case(raw: Any, field: str) -> Case:
    prefix = f"{field}." if field else ""
    if not isinstance(raw, dict):
        raise InputError(field or "case", raw, 'must be an object such as {"total": 8000, "queues": [...]}')
    _known_keys(raw, ("total", "queues"), prefix)
    if "total" not in raw:
        raise InputError(f"{prefix}total", None, f"is missing: give the amount to divide, {_UNITS}")
    queues = raw.get("queues", [])
    if not isinstance(queues, list):
        raise InputError(f"{prefix}queues", queues, "must be a list of queues")
    return Case(
        _amount(raw["total"], f"{prefix}total"),
        tuple(_queue(queue, f"{prefix}queues", number) for number, queue in enumerate(queues)),
        prefix,
    )


def _queue(raw: Any, field: str, number: int) -> QueueDemand:
    if not isinstance(raw, dict):
        raise InputError(f"{field}[{number}]", raw, 'must be an object such as {"name": "team-a", "request": 2000}')
    name = _name(raw.get("name"), f"{field}[{number}].name")
    prefix = f"{field}.{name}."
    _known_keys(raw, _PARSERS, prefix)
    return QueueDemand(**{key: _PARSERS[key](value, f"{prefix}{key}") for key, value in raw.items()})


def _known_keys(raw: Mapping[Any, Any], known: Collection[str], prefix: str) -> None:
    for key, value in raw.items():
        if key not in known:
            named = key if isinstance(key, str) and key.isprintable() else ascii(key)
            fix = f"is not a key here; keys are {', '.join(known)}"
            raise InputError(f"{prefix}{named}", value, fix, code="UnknownKey")


def _name(value: Any, field: str) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InputError(field, value, "must be the name of the queue, in printable characters")
    return value


def _parent(value: Any, field: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InputError(field, value, "must be the name of a queue, or null for a root queue")
    return value or None


def _amount(value: Any, field: str) -> int:
    if not _is_integer(value) or value < 0:
        raise InputError(field, value, f"must be an integer of at least 0, {_UNITS}")
    return int(value)


def _amount_or_unlimited(value: Any, field: str) -> int:
    if not _is_integer(value) or (value < 0 and value != UNLIMITED):
        raise InputError(field, value, f"must be an integer of at least 0, {_UNITS}, or {UNLIMITED} for unlimited")
    return int(value)


def _weight(value: Any, field: str) -> int | Fraction:
    exact = value.exact() if isinstance(value, WrittenNumber) else value if _is_integer(value) else None
    if exact is None or exact < 0:
        bounds = f"at most {MOST_DIGITS} digits and an exponent up to {LARGEST_EXPONENT}"
        raise InputError(field, value, f"must be a number of at least 0, with {bounds}")
    return exact


def _priority(value: Any, field: str) -> int:
    if not _is_integer(value):
        raise InputError(field, value, "must be an integer; queues with a higher priority are first")
    return int(value)


def _created(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise InputError(field, value, 'must be a time as text, such as "2026-01-31T08:00:00Z"')
    return value


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_PARSERS: dict[str, Callable[[Any, str], Any]] = {
    "name": _name,
    "parent": _parent,
    "quota": _amount_or_unlimited,
    "limit": _amount_or_unlimited,
    "weight": _weight,
    "priority": _priority,
    "request": _amount,
    "created": _created,
}
