"""The Common Expression Language, as far as Kubernetes uses it.

`compile_expression` reads an expression and checks every name, function and type in it, so that what cannot be
evaluated is refused when it is registered; `CompiledExpression.evaluate` runs it against plain JSON values. Evaluation
is bounded: an expression that does too much ends with an error instead of holding the server.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pocketkube.api.expressions import checker, code, functions, parser, types
from pocketkube.api.expressions.checker import Environment, PlanningError
from pocketkube.api.expressions.code import Code, Scope, StepBudget
from pocketkube.api.expressions.functions import EvaluationError
from pocketkube.api.expressions.parser import CelSyntaxError
from pocketkube.api.expressions.types import Type

__all__ = [
    "CelSyntaxError",
    "CompiledExpression",
    "EvaluationError",
    "PlanningError",
    "ResultTypeError",
    "StepBudget",
    "compile_expression",
]


class ResultTypeError(ValueError):
    """An expression whose result can never be what is needed."""


@dataclass(frozen=True, slots=True)
class CompiledExpression:
    """An expression that is ready to run."""

    text: str
    result: Type
    code: Code

    def evaluate(self, values: Mapping[str, Any], budget: StepBudget | None = None) -> Any:
        try:
            return self.code(Scope(dict(values), budget))
        except RecursionError:
            raise EvaluationError("the expression is nested too deep") from None

    def is_true(self, values: Mapping[str, Any], budget: StepBudget | None = None) -> bool:
        """The value of an expression that must be a bool."""
        result = self.evaluate(values, budget)
        if not isinstance(result, bool):
            raise EvaluationError(f"expected bool, got {functions.type_name(result)}")
        return result


def compile_expression(
    text: str, environment: Environment, results: tuple[Type, ...] | None = (types.BOOL,)
) -> CompiledExpression:
    """A program over the variables of an environment, whose result has one of some types (None: any).

    Raises CelSyntaxError with the position of what is wrong, ResultTypeError or PlanningError.
    """
    node = parser.parse(text)
    found = checker.check(node, text, environment)
    if results is not None and found not in results:
        wanted = str(results[0]) if len(results) == 1 else f"one of [{' '.join(map(str, results))}]"
        raise ResultTypeError(f"must evaluate to {wanted} but got {found}")
    return CompiledExpression(text, found, code.generate(node, environment))


cached_expression = functools.lru_cache(maxsize=1024)(compile_expression)
"""The same for environments that are constants."""
