"""What the macros make of the results for every item: `all`, `exists`, `filter`, `map` and their kin."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pocketkube.api.expressions.functions import EvaluationError, no_overload

Results = Iterable[tuple[Any, Callable[[], Any]]]
"""Every item (or its key) with its step, which is evaluated when it is called."""


def must_be_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise no_overload("_&&_", value)
    return value


def _every(results: Results) -> bool:
    return _quantified(results, decisive=False)


def _some(results: Results) -> bool:
    return _quantified(results, decisive=True)


def _quantified(results: Results, *, decisive: bool) -> bool:
    """One decisive value settles it, whatever errors other items raise."""
    problem: EvaluationError | None = None
    for _, step in results:
        try:
            if must_be_bool(step()) is decisive:
                return decisive
        except EvaluationError as error:
            problem = problem or error
    if problem is not None:
        raise problem
    return not decisive


def _one(results: Results) -> bool:
    return sum(must_be_bool(step()) for _, step in results) == 1


def _entries(results: Results) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for _, step in results:
        entry = step()
        if not isinstance(entry, dict):
            raise no_overload("transformMapEntry", entry)
        for key, value in entry.items():
            if key in found:
                raise EvaluationError(f"insert failed: key {key} already exists")
            found[key] = value
    return found


FINISH: dict[str, Callable[[Results], Any]] = {
    "all": _every,
    "exists": _some,
    "exists_one": _one,
    "existsOne": _one,
    "filter": lambda results: [item for item, step in results if must_be_bool(step())],
    "map": lambda results: [step() for _, step in results],
    "transformList": lambda results: [step() for _, step in results],
    "transformMap": lambda results: {key: step() for key, step in results},
    "transformMapEntry": _entries,
}
