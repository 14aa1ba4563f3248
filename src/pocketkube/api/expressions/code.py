"""From the tree of an expression that was checked to closures that evaluate it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pocketkube.api.expressions import access, function_tables, functions, optional_values, parser
from pocketkube.api.expressions.checker import Environment, qualified_name
from pocketkube.api.expressions.comprehensions import FINISH, Results, must_be_bool
from pocketkube.api.expressions.functions import EvaluationError, no_overload
from pocketkube.api.expressions.operators import OPERATORS
from pocketkube.api.expressions.optional_values import Optional
from pocketkube.api.expressions.parser import ExpressionNode

MOST_STEPS = 200_000
_TEXT_PER_STEP = 10


class StepBudget:
    """How many steps several expressions may take together."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps


class Scope:
    """The values of names, and how many steps are left: of the expression itself, and of all that share the budget."""

    __slots__ = ("budget", "steps", "values")

    def __init__(self, values: dict[str, Any], budget: StepBudget | None) -> None:
        self.values = values
        self.steps = MOST_STEPS
        self.budget = budget or StepBudget(MOST_STEPS)

    def charge(self, steps: int) -> None:
        self.steps -= steps
        self.budget.left -= steps
        if self.steps < 0 or self.budget.left < 0:
            raise EvaluationError("operation cancelled: actual cost limit exceeded")


Code = Callable[[Scope], Any]


def generate(node: ExpressionNode, environment: Environment) -> Code:
    return _Generator(environment).of(node, frozenset(environment.names))


class _Generator:
    def __init__(self, environment: Environment) -> None:
        self._escaped = environment.escaped_fields

    def of(self, node: ExpressionNode, names: frozenset[str]) -> Code:  # noqa: PLR0911, C901  one case per node
        match node:
            case parser.Literal():
                value = node.value
                return lambda _scope: value
            case parser.Name():
                return _name(node.name, names)
            case parser.Select():
                return self._select(node, names)
            case parser.Index():
                of, key = self.of(node.of, names), self.of(node.key, names)
                index = optional_values.indexed if node.optional else access.indexed
                return lambda scope: index(of(scope), key(scope))
            case parser.Logic():
                return _logic(node.every, tuple(self.of(each, names) for each in node.parts))
            case parser.Choice():
                return self._choice(node, names)
            case parser.ListOf():
                return self._list(node, names)
            case parser.MapOf():
                return self._map(node, names)
            case parser.Comprehension():
                return self._comprehension(node, names)
            case parser.OptionalMacro():
                return self._optional_macro(node, names)
            case parser.FunctionCall():
                return self._call(node, names)
        raise AssertionError(node)

    def _select(self, node: parser.Select, names: frozenset[str]) -> Code:
        qualified = qualified_name(node)
        if qualified in function_tables.TYPE_VALUES and qualified.partition(".")[0] not in names:
            return _name(qualified, names)
        of, field = self.of(node.of, names), access.unescaped(node.field) if self._escaped else node.field
        if node.test:
            return lambda scope: access.has(of(scope), field)
        if node.optional:
            return lambda scope: optional_values.selected(of(scope), field)
        return lambda scope: access.field(of(scope), field)

    def _choice(self, node: parser.Choice, names: frozenset[str]) -> Code:
        condition, yes, no = (self.of(each, names) for each in (node.condition, node.yes, node.no))

        def choose(scope: Scope) -> Any:
            found = condition(scope)
            if not isinstance(found, bool):
                raise no_overload("_?_:_", found)
            return yes(scope) if found else no(scope)

        return choose

    def _list(self, node: parser.ListOf, names: frozenset[str]) -> Code:
        items = tuple((self.of(each.value, names), each.optional) for each in node.items)

        def make(scope: Scope) -> list[Any]:
            found: list[Any] = []
            for item, optional in items:
                value = item(scope)
                if not optional:
                    found.append(value)
                elif _optional(value).has:
                    found.append(value.value)
            return found

        return make

    def _map(self, node: parser.MapOf, names: frozenset[str]) -> Code:
        entries = tuple((self.of(each.key, names), self.of(each.value, names), each.optional) for each in node.entries)

        def make(scope: Scope) -> dict[Any, Any]:
            found: dict[Any, Any] = {}
            for key, value, optional in entries:
                name = key(scope)
                if not isinstance(name, str | int | bool):
                    raise EvaluationError(f"unsupported key type: {functions.type_name(name)}")
                content = value(scope)
                if not optional:
                    found[name] = content
                elif _optional(content).has:
                    found[name] = content.value
            return found

        return make

    def _call(self, node: parser.FunctionCall, names: frozenset[str]) -> Code:
        arguments = tuple(self.of(each, names) for each in node.arguments)
        prefix = qualified_name(node.target) if node.target is not None else ""
        function = function_tables.FUNCTIONS.get((f"{prefix}.{node.name}", len(arguments))) if prefix else None
        if function is None and node.target is not None:
            arguments = (self.of(node.target, names), *arguments)
            function = function_tables.METHODS.get((node.name, len(arguments)))
        elif function is None:
            function = OPERATORS.get(node.name) or function_tables.FUNCTIONS.get((node.name, len(arguments)))
        assert function is not None, f"{node.name} is declared and not implemented"
        call = function

        def run(scope: Scope) -> Any:
            values = [argument(scope) for argument in arguments]
            scope.charge(_cost(values))
            return call(*values)

        return run

    def _comprehension(self, node: parser.Comprehension, names: frozenset[str]) -> Code:
        over, inner = self.of(node.over, names), names | set(node.names)
        step = self.of(node.step, inner)
        where = self.of(node.where, inner) if node.where is not None else None
        finish, bound = FINISH[node.kind], node.names

        def run(scope: Scope) -> Any:
            items = access.pairs(over(scope)) if len(bound) > 1 else access.singles(over(scope))
            outer = scope.values

            def results() -> Iterator[tuple[Any, Callable[[], Any]]]:
                for item in items:
                    scope.charge(1)
                    scope.values = {**outer, **dict(zip(bound, item, strict=True))}
                    if where is None or must_be_bool(where(scope)):
                        yield item[0], lambda: step(scope)

            try:
                found: Results = results()
                return finish(found)
            finally:
                scope.values = outer

        return run

    def _optional_macro(self, node: parser.OptionalMacro, names: frozenset[str]) -> Code:
        over, step = self.of(node.over, names), self.of(node.step, names | {node.name})
        name, flat = node.name, node.flat

        def run(scope: Scope) -> Any:
            target = _optional(over(scope))
            if not target.has:
                return optional_values.NONE
            outer = scope.values
            scope.values = {**outer, name: target.value}
            try:
                found = step(scope)
            finally:
                scope.values = outer
            return found if flat else Optional(found)

        return run


def _name(name: str, names: frozenset[str]) -> Code:
    if name not in names:
        value = function_tables.TYPE_VALUES[name]
        return lambda _scope: value
    return lambda scope: scope.values.get(name)


def _optional(value: Any) -> Optional:
    if not isinstance(value, Optional):
        raise EvaluationError(f"cannot initialize optional entry from non-optional value {functions.type_name(value)}")
    return value


def _logic(every: bool, parts: tuple[Code, ...]) -> Code:  # noqa: FBT001  the operator
    """`&&` and `||` do not care for order: an error counts only if no other part decides."""

    def run(scope: Scope) -> bool:
        problem: EvaluationError | None = None
        for part in parts:
            try:
                if must_be_bool(part(scope)) is not every:
                    return not every
            except EvaluationError as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return every

    return run


def _cost(values: list[Any]) -> int:
    """What a call costs: most functions go through their arguments once."""
    cost = 1
    for value in values:
        if isinstance(value, str | bytes):
            cost += len(value) // _TEXT_PER_STEP
        elif isinstance(value, list | dict):
            cost += len(value)
    return cost
