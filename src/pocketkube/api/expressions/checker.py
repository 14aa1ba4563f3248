"""Names and types of an expression, checked before it is registered: the type of its result, or all that is wrong.

The rules and the wording are those of the checker that kube-apiserver uses. Fields of objects in admission have the
type `dyn`, which fits everywhere; what they hold shows when the expression is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pocketkube.api.expressions import formatting, functions, parser, timestamps, type_values, types
from pocketkube.api.expressions.functions import EvaluationError
from pocketkube.api.expressions.parser import CelTypeErrors, ExpressionNode
from pocketkube.api.expressions.signatures import OVERLOADS, Overload
from pocketkube.api.expressions.types import BOOL, DYN, ERROR, INT, Substitutions, Type


@dataclass(frozen=True, eq=False)
class Environment:
    """The variables of an expression, and the fields of the types that are not plain."""

    names: Mapping[str, Type]
    objects: Mapping[str, Mapping[str, Type]] = field(default_factory=dict)
    escaped_fields: bool = False
    """Fields whose names are no identifiers are written with escapes: `foo__dash__bar` is foo-bar."""


class PlanningError(ValueError):
    """An expression of the right types that can be seen to end with an error."""


def check(node: ExpressionNode, text: str, environment: Environment) -> Type:
    """The type of the result; raises CelTypeErrors."""
    checker = _Checker(environment)
    found = checker.of(node, dict(environment.names))
    if checker.problems:
        raise CelTypeErrors(checker.problems, text)
    if checker.failed_conversion:
        raise PlanningError(f"program instantiation failed: {checker.failed_conversion}")
    return checker.substitutions.resolved(found, free=DYN)


Names = dict[str, Type]


class _Checker:
    def __init__(self, environment: Environment) -> None:
        self.problems: list[tuple[int, str]] = []
        self.substitutions = Substitutions()
        self.failed_conversion = ""
        self._objects = environment.objects

    def of(self, node: ExpressionNode, names: Names) -> Type:  # noqa: PLR0911, C901  one case per node
        match node:
            case parser.Literal():
                return _type_of(node.value)
            case parser.Name():
                return self._name(node, node.name, names)
            case parser.Select():
                return self._select(node, names)
            case parser.Index():
                given = [self.of(node.of, names), self.of(node.key, names)]
                return self._resolved(node.at, "_[?_]" if node.optional else "_[_]", given)
            case parser.Logic():
                for part in node.parts:
                    self._expect(part, BOOL, self.of(part, names))
                return BOOL
            case parser.Choice():
                given = [self.of(each, names) for each in (node.condition, node.yes, node.no)]
                return self._resolved(node.at, "_?_:_", given)
            case parser.ListOf():
                return types.list_of(self._joined(((item.value, item.optional) for item in node.items), names))
            case parser.MapOf():
                keys = self._joined(((entry.key, False) for entry in node.entries), names)
                values = self._joined(((entry.value, entry.optional) for entry in node.entries), names)
                return types.map_of(keys, values)
            case parser.Comprehension():
                return self._comprehension(node, names)
            case parser.OptionalMacro():
                return self._optional_macro(node, names)
            case parser.FunctionCall():
                return self._call(node, names)
        raise AssertionError(node)

    def _name(self, node: ExpressionNode, name: str, names: Names) -> Type:
        if name in names:
            return names[name]
        if name in type_values.BY_NAME:
            return Type("type", (Type(name),))
        return self._problem(node.at, f"undeclared reference to '{name}' (in container '')")

    def _select(self, node: parser.Select, names: Names) -> Type:
        qualified = qualified_name(node)
        if (
            qualified
            and not node.test
            and not node.optional
            and (qualified in names or qualified in type_values.BY_NAME)
        ):
            return self._name(node, qualified, names)
        target = self.substitutions.resolved(self.of(node.of, names))
        unwrapped = target.of[0] if target.name == "optional_type" else target
        found = self._field(node.at, self.substitutions.resolved(unwrapped), node.field)
        if node.test:
            return BOOL
        return types.optional_of(found) if node.optional or unwrapped is not target else found

    def _field(self, at: int, of: Type, name: str) -> Type:
        if of.name == "map":
            return of.of[1]
        if of.is_parameter:
            self.substitutions.assignable([DYN], [of])
            return DYN
        if of.is_any:
            return DYN
        if of.name in self._objects:
            found = self._objects[of.name].get(name)
            return found if found is not None else self._problem(at, f"undefined field '{name}'")
        if "." in of.name and of not in (types.TIMESTAMP, types.DURATION):
            return self._problem(at, f"unexpected failed resolution of '{of.name}'")
        self._problem(at, f"type '{of.shown}' does not support field selection")
        return DYN

    def _joined(self, items: Iterable[tuple[ExpressionNode, bool]], names: Names) -> Type:
        """The type of all items of a list or a map, which must agree."""
        joined: Type | None = None
        for node, optional in items:
            found = self.of(node, names)
            if optional:
                found = self._unwrapped(node, found)
            if joined is None:
                joined = found
            elif self.substitutions.assignable([joined], [found]):
                joined = types.most_general(joined, found)
            else:
                joined = self._mismatch(node, joined, found)
        return joined if joined is not None else self.substitutions.parameter()

    def _unwrapped(self, node: ExpressionNode, found: Type) -> Type:
        found = self.substitutions.resolved(found)
        if found.name == "optional_type":
            return found.of[0]
        return found if found.is_any else self._mismatch(node, types.optional_of(found), found)

    def _call(self, node: parser.FunctionCall, names: Names) -> Type:
        if node.name == "format" and node.target is not None and len(node.arguments) == 1:
            arguments = [self._format_arguments(node, names)]
        else:
            arguments = [self.of(each, names) for each in node.arguments]
        self._check_literal(node)
        name = _OPERATORS.get(node.name, node.name) if node.target is None else node.name
        if node.target is None:
            return self._resolved(node.at, name, arguments)
        prefix = qualified_name(node.target)
        if prefix and f"{prefix}.{name}" in OVERLOADS:
            return self._resolved(node.at, f"{prefix}.{name}", arguments)
        return self._resolved(node.at, name, [self.of(node.target, names), *arguments], method=True)

    def _resolved(self, at: int, name: str, given: list[Type], *, method: bool = False) -> Type:
        """The result of a call: that of all overloads that fit, or `dyn` where they differ."""
        overloads = OVERLOADS.get(name)
        if overloads is None:
            return self._problem(at, f"undeclared reference to '{name}' (in container '')")
        result: Type | None = None
        for overload in overloads:
            found = self._result(overload, given, method=method)
            if found is not None:
                result = found if result in (None, found) else DYN
        if result is not None:
            return result
        shown = [self.substitutions.resolved(each, free=DYN).shown for each in given]
        listed = f"{shown[0]}.({', '.join(shown[1:])})" if method else f"({', '.join(shown)})"
        return self._problem(at, f"found no matching overload for '{name}' applied to '{listed}'")

    def _result(self, overload: Overload, given: list[Type], *, method: bool) -> Type | None:
        if overload.is_method is not method:
            return None
        result, *expected = self.substitutions.instantiated((overload.result, *overload.arguments))
        return self.substitutions.resolved(result) if self.substitutions.assignable(given, expected) else None

    def _format_arguments(self, node: parser.FunctionCall, names: Names) -> Type:
        """The list of values may have any types, but those must be what a literal format wants."""
        values = node.arguments[0]
        if not isinstance(values, parser.ListOf):
            return self.of(values, names)
        found = [self.substitutions.resolved(self.of(item.value, names), free=DYN) for item in values.items]
        if isinstance(node.target, parser.Literal) and isinstance(node.target.value, str):
            for index, why in formatting.problems(node.target.value, [each.name for each in found]):
                self._problem(node.at if index is None else values.items[index].value.at, why)
        return types.list_of(DYN)

    def _check_literal(self, node: parser.FunctionCall) -> None:
        """Literals that will never be a pattern or a time."""
        literal = node.arguments[-1] if node.arguments else None
        if not isinstance(literal, parser.Literal):
            return
        if node.name in _CONVERSIONS and node.target is None and len(node.arguments) == 1:
            self._convert(node.name, literal.value)
        valid = _LITERALS.get(node.name)
        if valid is not None and isinstance(literal.value, str) and not valid(literal.value):
            self._problem(literal.at, f"invalid {node.name} argument")

    def _convert(self, name: str, value: Any) -> None:
        """kube-apiserver converts literals when it plans the program, after all other checks."""
        try:
            functions.FUNCTIONS[name, 1](value)
        except EvaluationError as problem:
            self.failed_conversion = self.failed_conversion or str(problem)

    def _comprehension(self, node: parser.Comprehension, names: Names) -> Type:
        over = self.substitutions.resolved(self.of(node.over, names))
        inner = {**names, **dict(zip(node.names, self._bound(node, over), strict=True))}
        if node.where is not None:
            self._condition(node, node.where, inner)
        if node.kind in ("filter", "exists_one", "existsOne"):
            self._condition(node, node.step, inner)
            return BOOL if node.kind != "filter" else types.list_of(inner[node.names[0]])
        found = self.of(node.step, inner)
        match node.kind:
            case "all" | "exists":
                self._expect(node.step, BOOL, found)
                return BOOL
            case "map" | "transformList":
                return types.list_of(found)
            case "transformMap":
                return types.map_of(inner[node.names[0]], found)
        return found  # transformMapEntry: the step is a map

    def _bound(self, node: parser.Comprehension, over: Type) -> tuple[Type, ...]:
        single = len(node.names) == 1
        if over.name == "list":
            return over.of if single else (INT, over.of[0])
        if over.name == "map":
            return over.of[:1] if single else over.of
        if over.is_parameter:
            self.substitutions.assignable([DYN], [over])
        elif not over.is_any:
            why = (
                f"expression of type '{over.shown}' cannot be range of a comprehension (must be list, map, or dynamic)"
            )
            self._problem(node.over.at, why)
        return (DYN,) * len(node.names)

    def _condition(self, node: parser.Comprehension, condition: ExpressionNode, names: Names) -> None:
        """Filters are a choice between taking an item and leaving it."""
        found = self.of(condition, names)
        kept = types.list_of(names[node.names[0]]) if node.kind in ("filter", "map", "transformList") else INT
        if not self.substitutions.assignable([found], [BOOL]):
            self._resolved(node.at, "_?_:_", [found, kept, kept])

    def _optional_macro(self, node: parser.OptionalMacro, names: Names) -> Type:
        over = self.substitutions.resolved(self.of(node.over, names))
        value = over.of[0] if over.name == "optional_type" else DYN
        if over.name != "optional_type" and not over.is_any and not over.is_parameter:
            self._resolved(node.at, "hasValue", [over], method=True)
        found = self.of(node.step, {**names, node.name: value})
        return self._optional(node.step, found) if node.flat else types.optional_of(found)

    def _optional(self, node: ExpressionNode, found: Type) -> Type:
        wanted = types.optional_of(self.substitutions.parameter())
        return found if self.substitutions.assignable([found], [wanted]) else self._mismatch(node, wanted, found)

    def _expect(self, node: ExpressionNode, wanted: Type, found: Type) -> None:
        if not self.substitutions.assignable([found], [wanted]):
            self._mismatch(node, wanted, found)

    def _mismatch(self, node: ExpressionNode, wanted: Type, found: Type) -> Type:
        shown = [self.substitutions.resolved(each, free=DYN).shown for each in (wanted, found)]
        return self._problem(node.at, f"expected type '{shown[0]}' but found '{shown[1]}'")

    def _problem(self, at: int, message: str) -> Type:
        self.problems.append((at, message))
        return ERROR


_OPERATORS = {
    **{sign: f"_{sign}_" for sign in ("==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%")},
    "in": "@in",
}


def _type_of(value: Any) -> Type:
    return next((found for kind, found in _LITERAL_TYPES if isinstance(value, kind)), types.NULL)


_LITERAL_TYPES: tuple[tuple[type, Type], ...] = (
    (bool, BOOL),
    (parser.UInt, types.UINT),
    (int, INT),
    (float, types.DOUBLE),
    (str, types.STRING),
    (bytes, types.BYTES),
)


def qualified_name(node: ExpressionNode) -> str:
    """`a.b.c` as one name; empty if the expression is anything else."""
    match node:
        case parser.Name():
            return node.name
        case parser.Select(test=False, optional=False):
            of = qualified_name(node.of)
            return f"{of}.{node.field}" if of else ""
    return ""


def _evaluates(function: Any) -> Any:
    def valid(text: str) -> bool:
        try:
            function(text)
        except EvaluationError:
            return False
        return True

    return valid


_CONVERSIONS = frozenset({"bool", "double", "int", "string", "uint"})
_LITERALS = {
    "matches": _evaluates(functions.pattern),
    "timestamp": _evaluates(timestamps.timestamp),
    "duration": _evaluates(timestamps.duration),
}
