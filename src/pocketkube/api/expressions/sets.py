"""Lists compared as sets: `sets.contains(object.spec.a, ['x'])`."""

from __future__ import annotations

from typing import Any

from pocketkube.api.expressions.functions import EvaluationError, Function, equal, no_overload

_MOST_COMPARISONS = 100_000


def _lists(name: str, function: Function) -> Function:
    def guarded(left: Any, right: Any) -> bool:
        if not isinstance(left, list) or not isinstance(right, list):
            raise no_overload(name, left, right)
        if len(left) * len(right) > _MOST_COMPARISONS:
            raise EvaluationError("operation cancelled: actual cost limit exceeded")
        return bool(function(left, right))

    return guarded


def _contains(left: list[Any], right: list[Any]) -> bool:
    return all(any(equal(item, each) for each in left) for item in right)


def _intersects(left: list[Any], right: list[Any]) -> bool:
    return any(any(equal(item, each) for each in left) for item in right)


FUNCTIONS: dict[tuple[str, int], Function] = {
    ("sets.contains", 2): _lists("sets.contains", _contains),
    ("sets.intersects", 2): _lists("sets.intersects", _intersects),
    ("sets.equivalent", 2): _lists(
        "sets.equivalent", lambda left, right: _contains(left, right) and _contains(right, left)
    ),
}
