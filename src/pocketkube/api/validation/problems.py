"""What is wrong with an object: causes, worded as kube-apiserver words them.

Validators get a `Problems` and add to it; a path is written as users know it (`spec.containers[0].name`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from pocketkube.api.status import Cause
from pocketkube.api.validation import name_rules

IMMUTABLE = "field is immutable"
NOT_NEGATIVE = "must be greater than or equal to 0"
HIGHEST_PORT = 65535
PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)


class Problems:
    """The causes found so far."""

    def __init__(self) -> None:
        self.causes: list[Cause] = []

    def required(self, path: str, detail: str = "") -> None:
        self._add(path, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))

    def invalid(self, path: str, value: Any, detail: str) -> None:
        self._add(path, "FieldValueInvalid", f"Invalid value: {shown(value)}" + (f": {detail}" if detail else ""))

    def unsupported(self, path: str, value: Any, supported: Iterable[str]) -> None:
        listed = ", ".join(f'"{each}"' for each in supported)
        self._add(path, "FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {listed}")

    def forbidden(self, path: str, detail: str) -> None:
        self._add(path, "FieldValueForbidden", f"Forbidden: {detail}")

    def duplicate(self, path: str, value: Any, detail: str = "") -> None:
        message = f"Duplicate value: {shown(value)}" + (f": {detail}" if detail else "")
        self._add(path, "FieldValueDuplicate", message)

    def not_found(self, path: str, value: Any) -> None:
        self._add(path, "FieldValueNotFound", f"Not found: {shown(value)}")

    def too_long(self, path: str, limit: int) -> None:
        self._add(path, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")

    def too_many(self, path: str, count: int, limit: int) -> None:
        self._add(path, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} items")

    def internal(self, path: str, detail: str) -> None:
        self._add(path, "InternalError", f"Internal error: {detail}")

    def one_of(self, path: str, value: Any, supported: Collection[str], *, required: bool = True) -> None:
        """A value from a closed set; an empty one is missing."""
        if not value:
            if required:
                self.required(path)
        elif value not in supported:
            self.unsupported(path, value, supported)

    def immutable(self, path: str, new: Any, old: Any) -> None:
        if new != old:
            self.invalid(path, new, IMMUTABLE)

    def not_negative(self, path: str, value: Any) -> None:
        if isinstance(value, int) and value < 0:
            self.invalid(path, value, NOT_NEGATIVE)

    def in_range(self, path: str, value: int, lowest: int, highest: int) -> None:
        if not lowest <= value <= highest:
            self.invalid(path, value, f"must be between {lowest} and {highest}, inclusive")

    def port(self, path: str, value: Any) -> None:
        """A port by number, or by the name that a container gives it."""
        if isinstance(value, int):
            self.in_range(path, value, 1, HIGHEST_PORT)
        else:
            self.all_of(path, value, name_rules.port_name(value))

    def unique(self, path: str, field: str, items: list[dict[str, Any]]) -> None:
        """Items of a list that must differ in one field."""
        seen: set[Any] = set()
        for index, item in enumerate(items):
            value = item.get(field)
            if value and value in seen:
                self.duplicate(f"{path}[{index}].{field}", value)
            seen.add(value)

    def all_of(self, path: str, value: Any, details: Iterable[str]) -> None:
        for detail in details:
            self.invalid(path, value, detail)

    def _add(self, path: str, reason: str, message: str) -> None:
        self.causes.append(Cause(path, message, reason))


def shown(value: Any) -> str:
    """A value as error messages show it."""
    if value is None:
        return "null"
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=False)


def shown_as_go_does(value: Any) -> str:
    """A decoded document in the notation that Go prints maps and slices in."""
    match value:
        case dict():
            return f"map[{' '.join(f'{key}:{shown_as_go_does(value[key])}' for key in sorted(value))}]"
        case list():
            return f"[{' '.join(map(shown_as_go_does, value))}]"
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
    return str(value)
