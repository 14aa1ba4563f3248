"""The Common Expression Language, as far as match conditions and validation rules need it.

`compile` reads an expression and checks every name and function in it, so that what cannot be evaluated is
refused when it is registered; `CompiledExpression.evaluate` runs it against plain JSON values. Evaluation is bounded:
an expression that does too much ends with an error instead of holding the server.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pocketkube.api.expressions import costs, functions, optional_values, parser, timestamps
from pocketkube.api.expressions.functions import EvaluationError, is_int, no_overload
from pocketkube.api.expressions.operators import OPERATORS
from pocketkube.api.expressions.optional_values import Optional
from pocketkube.api.expressions.parser import CelSyntaxError, ExpressionNode

__all__ = ["CelSyntaxError", "CompiledExpression", "EvaluationError", "NotBoolError", "compile_expression"]

MOST_STEPS = 200_000

Values = dict[str, Any]


class _Scope:
    """The values of names, and how many steps are left."""

    __slots__ = ("steps", "values")

    def __init__(self, values: Values, steps: int) -> None:
        self.values = values
        self.steps = steps


class Budget(Protocol):
    """Steps that several expressions share."""

    steps: int


Code = Callable[[_Scope], Any]


@dataclass(frozen=True, slots=True)
class CompiledExpression:
    """An expression that is ready to run."""

    text: str
    code: Code

    def evaluate(self, values: Mapping[str, Any], budget: Budget | None = None) -> Any:
        """`budget`: what this and other expressions may cost together; it is reduced."""
        scope = _Scope(dict(values), min(MOST_STEPS, budget.steps) if budget else MOST_STEPS)
        given = scope.steps
        try:
            return self.code(scope)
        except RecursionError:
            raise EvaluationError("the expression is nested too deep") from None
        finally:
            if budget:
                budget.steps -= given - scope.steps

    def is_true(self, values: Mapping[str, Any], budget: Budget | None = None) -> bool:
        """The value of an expression that must be a bool."""
        result = self.evaluate(values, budget)
        if not isinstance(result, bool):
            raise EvaluationError(f"expected bool, got {functions.type_name(result)}")
        return result


def compile_expression(text: str, variables: Collection[str], *, boolean: bool = True) -> CompiledExpression:
    """A program over some variables; raises CelSyntaxError with the position of what is wrong, or NotBoolError."""
    return _compile(text, frozenset(variables), boolean)


@functools.lru_cache(maxsize=1024)
def _compile(text: str, variables: frozenset[str], boolean: bool) -> CompiledExpression:  # noqa: FBT001  cached by value
    node = parser.parse(text)
    compiler = _Compiler(text)
    code = compiler.code(node, variables)
    kind = _static_type(node)
    if boolean and (kind not in ("bool", "dyn") or _is_field_of_object(node)):
        raise NotBoolError(f"must evaluate to bool but got {kind}")
    return CompiledExpression(text, code)


class NotBoolError(ValueError):
    """An expression that can never be true or false."""


_RESULTS = {
    **dict.fromkeys(("size", "int", "indexOf", "lastIndexOf", "compareTo", "sign", "asInteger"), "int"),
    **dict.fromkeys(("string", "lowerAscii", "upperAscii", "trim", "replace", "substring", "join", "charAt"), "string"),
    **dict.fromkeys(("split", "findAll"), "list"),
    **dict.fromkeys(("uint",), "uint"),
    **dict.fromkeys(("double", "asApproximateFloat"), "double"),
    **dict.fromkeys(("quantity", "add", "sub"), "kubernetes.Quantity"),
    **dict.fromkeys(timestamps.NAMES, "int"),
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
}


def _static_type(node: ExpressionNode) -> str:  # noqa: PLR0911  one return per form
    """The type of a result as far as it is plain to see; `dyn` if it depends on the values."""
    match node:
        case parser.Literal():
            return functions.type_name(node.value)
        case parser.ListOf():
            return "list"
        case parser.MapOf():
            return "map"
        case parser.FunctionCall(name="+" | "-" | "*" | "/" | "%" | "-_"):
            types = {_static_type(each) for each in node.arguments}
            return types.pop() if len(types) == 1 else "dyn"
        case parser.FunctionCall():
            return _RESULTS.get(node.name, "dyn")
        case parser.Comprehension(kind="map" | "filter"):
            return "list"
        case parser.Choice():
            types = {_static_type(node.yes), _static_type(node.no)}
            return types.pop() if len(types) == 1 else "dyn"
        case _:
            return "dyn"


def _is_field_of_object(node: ExpressionNode) -> bool:
    """Whether an expression is a bare field of an object in admission, of which nobody knows the type."""
    selects = isinstance(node, parser.Select | parser.Index) and not (isinstance(node, parser.Select) and node.test)
    while isinstance(node, parser.Select | parser.Index):
        node = node.of
    return selects and isinstance(node, parser.Name) and node.name in ("object", "oldObject")


class _Compiler:
    """Turns nodes into closures."""

    def __init__(self, text: str) -> None:
        self._text = text

    def code(self, node: ExpressionNode, names: frozenset[str]) -> Code:  # noqa: PLR0911, C901  one case per node
        match node:
            case parser.Literal():
                value = node.value
                return lambda _scope: value
            case parser.Name():
                return self._name(node, names)
            case parser.Select():
                return self._select(node, names)
            case parser.Index():
                of, key = self.code(node.of, names), self.code(node.key, names)
                index = optional_values.indexed if node.optional else _indexed
                return lambda scope: index(of(scope), key(scope))
            case parser.Logic():
                return _logic(node.every, tuple(self.code(each, names) for each in node.parts))
            case parser.Choice():
                return self._choice(node, names)
            case parser.ListOf():
                items = tuple(self.code(each, names) for each in node.items)
                return lambda scope: [item(scope) for item in items]
            case parser.MapOf():
                return self._map(node, names)
            case parser.Comprehension():
                return self._comprehension(node, names)
            case parser.FunctionCall():
                return self._call(node, names)
        raise AssertionError(node)

    def _name(self, node: parser.Name, names: frozenset[str]) -> Code:
        name = node.name
        if name not in names:
            self._refuse_if_beyond_us(name, node.at)
            raise CelSyntaxError(f"undeclared reference to '{name}' (in container '')", self._text, node.at)
        return lambda scope: scope.values.get(name)

    def _select(self, node: parser.Select, names: frozenset[str]) -> Code:
        of, field = self.code(node.of, names), _unescaped(node.field)
        if node.test:
            return lambda scope: _has(of(scope), field)
        if node.optional:
            return lambda scope: optional_values.selected(of(scope), field)
        return lambda scope: _field(of(scope), field)

    def _choice(self, node: parser.Choice, names: frozenset[str]) -> Code:
        condition, yes, no = (self.code(each, names) for each in (node.condition, node.yes, node.no))

        def choose(scope: _Scope) -> Any:
            found = condition(scope)
            if not isinstance(found, bool):
                raise no_overload("_?_:_", found)
            return yes(scope) if found else no(scope)

        return choose

    def _map(self, node: parser.MapOf, names: frozenset[str]) -> Code:
        entries = tuple((self.code(key, names), self.code(value, names)) for key, value in node.entries)

        def make(scope: _Scope) -> dict[Any, Any]:
            found: dict[Any, Any] = {}
            for key, value in entries:
                name = key(scope)
                if not isinstance(name, str | int | bool):
                    raise EvaluationError(f"unsupported key type: {functions.type_name(name)}")
                found[name] = value(scope)
            return found

        return make

    def _call(self, node: parser.FunctionCall, names: frozenset[str]) -> Code:
        prefix = node.target.name if isinstance(node.target, parser.Name) and node.target.name not in names else ""
        dotted = _FUNCTIONS.get((f"{prefix}.{node.name}", len(node.arguments))) if prefix else None
        arguments = tuple(self.code(each, names) for each in node.arguments)
        if dotted is not None:
            function: functions.Function | None = dotted
        elif node.target is not None:
            arguments = (self.code(node.target, names), *arguments)
            function = _METHODS.get((node.name, len(arguments)))
        elif node.name in OPERATORS:
            function = OPERATORS[node.name]
            self._check_operands(node)
        else:
            function = _FUNCTIONS.get((node.name, len(arguments)))
        if function is None:
            self._refuse_if_beyond_us(node.name, node.at)
            raise CelSyntaxError(f"undeclared reference to '{node.name}' (in container '')", self._text, node.at)
        call = function

        def run(scope: _Scope) -> Any:
            values = [argument(scope) for argument in arguments]
            _step(scope, costs.of_call(values, scope.steps))
            return call(*values)

        return run

    def _check_operands(self, node: parser.FunctionCall) -> None:
        """Arithmetic on types that are plain to see and do not go together."""
        types = [_static_type(each) for each in node.arguments]
        if node.name in _ARITHMETIC and len(types) > 1 and types[0] != types[1] and _PLAIN.issuperset(types):
            why = f"found no matching overload for '_{node.name}_' applied to '({', '.join(types)})'"
            raise CelSyntaxError(why, self._text, node.at)

    def _refuse_if_beyond_us(self, name: str, at: int) -> None:
        if name in _BEYOND_US:
            raise CelSyntaxError(f"'{name}' is not supported by the embedded cluster", self._text, at)

    def _comprehension(self, node: parser.Comprehension, names: frozenset[str]) -> Code:
        over, name, inner = self.code(node.over, names), node.name, names | {node.name}
        step = self.code(node.step, inner)
        where = self.code(node.where, inner) if node.where is not None else None
        finish = _FINISH[node.kind]

        def run(scope: _Scope) -> Any:
            items = over(scope)
            if not isinstance(items, list | dict):
                raise EvaluationError(f"cannot iterate over {functions.type_name(items)}")
            outer = scope.values

            def results() -> Iterable[tuple[Any, Callable[[], Any]]]:
                for item in list(items):
                    _step(scope)
                    scope.values = {**outer, name: item}
                    if where is None or _must_be_bool(where(scope)):
                        yield item, lambda: step(scope)

            try:
                return finish(results())
            finally:
                scope.values = outer

        return run


_FUNCTIONS = functions.FUNCTIONS | timestamps.FUNCTIONS | optional_values.FUNCTIONS
_METHODS = functions.METHODS | timestamps.METHODS | optional_values.METHODS
_ARITHMETIC = frozenset("+-*/%")
_PLAIN = frozenset({"int", "uint", "double", "string", "bool", "list", "map"})
# What a real API server knows and this one cannot evaluate.
_BEYOND_US = frozenset(
    {
        *("authorizer", "namespaceObject", "sets", "strings", "format", "url", "isURL", "ip", "isIP", "cidr", "isCIDR"),
        *("semver", "isSemver", "type", "bytes", "optMap", "optFlatMap", "transformMap", "transformList"),
    }
)

Results = Iterable[tuple[Any, Callable[[], Any]]]


def _every(results: Results) -> bool:
    return _quantified(results, decisive=False)


def _some(results: Results) -> bool:
    return _quantified(results, decisive=True)


def _quantified(results: Results, *, decisive: bool) -> bool:
    """One decisive value settles it, whatever errors other items raise."""
    problem: EvaluationError | None = None
    for _, step in results:
        try:
            if _must_be_bool(step()) is decisive:
                return decisive
        except EvaluationError as error:
            problem = error
    if problem is not None:
        raise problem
    return not decisive


_FINISH: dict[str, Callable[[Results], Any]] = {
    "all": _every,
    "exists": _some,
    "exists_one": lambda results: sum(_must_be_bool(step()) for _, step in results) == 1,
    "existsOne": lambda results: sum(_must_be_bool(step()) for _, step in results) == 1,
    "filter": lambda results: [item for item, step in results if _must_be_bool(step())],
    "map": lambda results: [step() for _, step in results],
}


def _logic(every: bool, parts: tuple[Code, ...]) -> Code:  # noqa: FBT001  the operator
    """`&&` and `||` do not care for order: an error counts only if no other part decides."""

    def run(scope: _Scope) -> bool:
        problem: EvaluationError | None = None
        for part in parts:
            try:
                if _must_be_bool(part(scope)) is not every:
                    return not every
            except EvaluationError as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return every

    return run


def _step(scope: _Scope, cost: int = 1) -> None:
    scope.steps -= cost
    if scope.steps < 0:
        raise EvaluationError("operation cancelled: actual cost limit exceeded")


def _must_be_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise no_overload("_&&_", value)
    return value


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Optional):
        return optional_values.selected(value, name)
    if not isinstance(value, dict):
        raise EvaluationError(f"no such key: {name}")
    if name not in value:
        raise EvaluationError(f"no such key: {name}")
    return value[name]


def _has(value: Any, name: str) -> bool:
    if not isinstance(value, dict):
        raise EvaluationError(f"no such key: {name}")
    return value.get(name) is not None


def _indexed(value: Any, key: Any) -> Any:
    if isinstance(value, Optional):
        return optional_values.indexed(value, key)
    if isinstance(value, list):
        if not is_int(key):
            raise EvaluationError(f"unsupported index type '{functions.type_name(key)}' in list")
        if not 0 <= key < len(value):
            raise EvaluationError(f"index out of bounds: {key}")
        return value[key]
    if isinstance(value, dict):
        if not isinstance(key, str | int | float) or key not in value:
            raise EvaluationError(f"no such key: {key}")
        return value[key]
    raise no_overload("_[_]", value, key)


_ESCAPES = {"__underscores__": "__", "__dot__": ".", "__dash__": "-", "__slash__": "/"}


def _unescaped(name: str) -> str:
    """Names that are no identifiers are written with escapes: `foo__dash__bar` is foo-bar."""
    if "__" not in name:
        return name
    for escape, character in _ESCAPES.items():
        name = name.replace(escape, character)
    if name.startswith("__") and name.endswith("__") and name[2:-2].isalpha():
        return name[2:-2]  # a reserved word
    return name
