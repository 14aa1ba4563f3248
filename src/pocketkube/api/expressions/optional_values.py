"""Optional values of CEL: `object.?spec.?replicas.orValue(1)`."""

from __future__ import annotations

from typing import Any

from pocketkube.api.expressions.functions import EvaluationError, Function, is_int, no_overload


class Optional:
    """A value that may be missing; what is selected from it may be missing too."""

    __slots__ = ("has", "value")

    def __init__(self, *values: Any) -> None:
        self.has = bool(values)
        self.value = values[0] if values else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Optional) and (self.has, self.value) == (other.has, other.value)

    def __hash__(self) -> int:
        return hash(self.has)


NONE = Optional()


def selected(of: Any, name: str) -> Optional:
    """`of.?name`, also where `of` is optional itself."""
    if isinstance(of, Optional):
        return selected(of.value, name) if of.has else NONE
    if isinstance(of, dict):
        return Optional(of[name]) if name in of else NONE
    return NONE


def indexed(of: Any, key: Any) -> Optional:
    """`of[?key]`, also where `of` is optional itself."""
    if isinstance(of, Optional):
        return indexed(of.value, key) if of.has else NONE
    if isinstance(of, list):
        return Optional(of[key]) if is_int(key) and 0 <= key < len(of) else NONE
    if isinstance(of, dict):
        return Optional(of[key]) if isinstance(key, str | int | float) and key in of else NONE
    raise no_overload("_[?_]", of, key)


def _method(name: str, function: Function) -> Function:
    def guarded(target: Any, *arguments: Any) -> Any:
        if not isinstance(target, Optional):
            raise no_overload(name, target, *arguments)
        return function(target, *arguments)

    return guarded


def _value(target: Optional) -> Any:
    if not target.has:
        raise EvaluationError("optional.none() dereference")
    return target.value


def _or(target: Optional, other: Any) -> Any:
    if not isinstance(other, Optional):
        raise no_overload("or", target, other)
    return target if target.has else other


def _of_non_zero(value: Any) -> Optional:
    return Optional(value) if value not in (None, False, 0, "", [], {}) else NONE


# `optional` is no value: these are functions whose names have a dot in them.
FUNCTIONS: dict[tuple[str, int], Function] = {
    ("optional.of", 1): Optional,
    ("optional.ofNonZeroValue", 1): _of_non_zero,
    ("optional.none", 0): lambda: NONE,
}
METHODS: dict[tuple[str, int], Function] = {
    ("hasValue", 1): _method("hasValue", lambda target: target.has),
    ("value", 1): _method("value", _value),
    ("or", 2): _method("or", _or),
    ("orValue", 2): _method("orValue", lambda target, other: target.value if target.has else other),
}
