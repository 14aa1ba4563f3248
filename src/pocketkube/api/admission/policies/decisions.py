"""What a policy says about one request with one parameter object: expressions to decisions.

An expression that cannot be evaluated denies the request, or is passed over, as the failure policy says. Variables
are evaluated when an expression first reads them, once per request and parameter object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pocketkube.api.admission import match_conditions
from pocketkube.api.admission.policies.definitions import Policy, Validation
from pocketkube.api.expressions.evaluation import CompiledExpression, EvaluationError, StepBudget
from pocketkube.api.expressions.lazy_fields import LazyFields

LONGEST_MESSAGE = 5 * 1024
MOST_STEPS = 1_000_000

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Denial:
    """A validation that failed. `index` is its place in the policy, -1 for what is none of the validations."""

    message: str
    reason: str = "Invalid"
    index: int = -1


@dataclass(frozen=True, slots=True)
class Decisions:
    """Denials of validations, which the actions of the binding turn into something, and annotations for the audit."""

    denials: tuple[Denial, ...] = ()
    broken_annotations: tuple[Denial, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()


def decide(policy: Policy, values: Mapping[str, Any]) -> Decisions:
    try:
        if not match_conditions.hold(policy.conditions, values):
            return Decisions()
    except EvaluationError as problem:
        return Decisions(() if policy.ignore_failures else (Denial(str(problem)),))
    budget = StepBudget(MOST_STEPS)
    composed = {**values, "variables": _variables(policy, values, budget)}
    denials = (
        _judged(policy, index, validation, composed, budget) for index, validation in enumerate(policy.validations)
    )
    broken: list[Denial] = []
    annotations: list[tuple[str, str]] = []
    for key, expression in policy.annotations:
        try:
            value = expression.evaluate(composed, budget)
        except EvaluationError as problem:
            if not policy.ignore_failures:
                broken.append(Denial(_failed(expression, problem)))
            continue
        if isinstance(value, str) and value.strip():
            annotations.append((key, value.strip()))
    return Decisions(tuple(filter(None, denials)), tuple(broken), tuple(annotations))


def _judged(policy: Policy, index: int, validation: Validation, values: Values, budget: StepBudget) -> Denial | None:
    try:
        if validation.expression.is_true(values, budget):
            return None
    except EvaluationError as problem:
        return None if policy.ignore_failures else Denial(_failed(validation.expression, problem), index=index)
    return Denial(_message(validation, values, budget), validation.reason, index)


def _message(validation: Validation, values: Values, budget: StepBudget) -> str:
    """The result of the message expression, the message, or the expression itself: the first that there is."""
    if validation.message_expression is not None:
        try:
            found = validation.message_expression.evaluate(values, budget)
        except EvaluationError:
            found = ""
        text = found.strip() if isinstance(found, str) else ""
        if text and "\n" not in text and len(text.encode()) <= LONGEST_MESSAGE:
            return text
    return validation.message or f"failed expression: {validation.expression.text.strip()}"


def _variables(policy: Policy, values: Mapping[str, Any], budget: StepBudget) -> LazyFields:
    def evaluate(name: str) -> Any:
        try:
            return policy.variables[name].evaluate({**values, "variables": fields}, budget)
        except EvaluationError as problem:
            raise EvaluationError(f'composited variable "{name}" fails to evaluate: {problem}') from None

    fields = LazyFields(policy.variables, evaluate)
    return fields


def _failed(expression: CompiledExpression, problem: EvaluationError) -> str:
    return f"expression '{expression.text}' resulted in error: {problem}"
