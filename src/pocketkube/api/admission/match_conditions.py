"""Match conditions of webhooks and policies: expressions that are all true for the requests that are meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pocketkube.api.expressions.evaluation import CompiledExpression, EvaluationError, StepBudget

MOST_STEPS = 250_000


def hold(conditions: Iterable[CompiledExpression], values: Mapping[str, Any]) -> bool:
    """Whether all are true. One that is false decides; else errors are raised as one EvaluationError."""
    budget = StepBudget(MOST_STEPS)
    problems: list[str] = []
    for condition in conditions:
        try:
            if not condition.is_true({**values, "namespaceObject": None}, budget):
                return False
        except EvaluationError as error:
            problems.append(f"expression '{condition.text}' resulted in error: {error}")
    if problems:
        unique = list(dict.fromkeys(problems))
        raise EvaluationError(unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]")
    return True
