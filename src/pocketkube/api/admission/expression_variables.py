"""The variables of expressions in admission, and the expressions that may use them.

`object`, `oldObject`, `request`, `namespaceObject` and `authorizer` are known everywhere but in messages, which have no
`authorizer`; `params` where a policy has a parameter kind; `variables` in everything of a policy but its conditions.
"""

from __future__ import annotations

from pocketkube.api.expressions import evaluation
from pocketkube.api.expressions.evaluation import CompiledExpression

OBJECTS = ("object", "oldObject", "request", "namespaceObject")
CONDITION_VARIABLES = (*OBJECTS, "authorizer")


class Compiler:
    """Compiles the expressions of one policy. Variables are compiled in their order: each may use those before it."""

    def __init__(self, *, with_params: bool) -> None:
        self._condition = (*CONDITION_VARIABLES, *(("params",) if with_params else ()))
        self._message = (*OBJECTS, *(("params",) if with_params else ()), "variables")

    def condition(self, text: str) -> CompiledExpression:
        return evaluation.compile_expression(text, self._condition)

    def variable(self, name: str, text: str) -> CompiledExpression:
        del name
        return evaluation.compile_expression(text, (*self._condition, "variables"), boolean=False)

    def validation(self, text: str) -> CompiledExpression:
        return evaluation.compile_expression(text, (*self._condition, "variables"))

    def message(self, text: str) -> CompiledExpression:
        return evaluation.compile_expression(text, self._message, boolean=False)

    def annotation(self, text: str) -> CompiledExpression:
        return evaluation.compile_expression(text, (*self._condition, "variables"), boolean=False)
