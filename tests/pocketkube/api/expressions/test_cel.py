"""The expression language of match conditions and validation rules."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pocketkube.api.expressions import function_tables, signatures, types
from pocketkube.api.expressions.checker import Environment
from pocketkube.api.expressions.evaluation import (
    CelSyntaxError,
    CompiledExpression,
    EvaluationError,
    PlanningError,
    ResultTypeError,
    StepBudget,
    compile_expression,
)
from pocketkube.api.expressions.operators import OPERATORS

POD = {
    "metadata": {"name": "trainer", "labels": {"team": "a", "x.io/kind": "gpu"}},
    "spec": {
        "replicas": 3,
        "ratio": 0.5,
        "nothing": None,
        "containers": [
            {"name": "main", "resources": {"limits": {"mig.das.com/1g.5gb": "1", "cpu": "2"}}},
            {"name": "side"},
        ],
    },
}
VALUES: dict[str, Any] = {
    "object": POD,
    "oldObject": None,
    "request": {
        "operation": "CREATE",
        "namespace": "default",
        "userInfo": {"username": "system:serviceaccount:a:b", "groups": ["system:serviceaccounts", "dev"]},
    },
}


ENVIRONMENT = Environment(dict.fromkeys(VALUES, types.DYN))


def compiled(text: str) -> CompiledExpression:
    return compile_expression(text, ENVIRONMENT, (types.BOOL, types.DYN))


@pytest.mark.parametrize(
    "text",
    [
        "object.spec.replicas == 3",
        "object.spec.replicas >= 3 && object.spec.replicas < 4",
        "object.spec['replicas'] == 3",
        "object.metadata.labels['x.io/kind'] == \"gpu\"",
        "has(object.metadata.labels) && !has(object.metadata.annotations)",
        "!has(object.spec.nothing)",
        "'team' in object.metadata.labels",
        "'dev' in request.userInfo.groups",
        "!(request.namespace in ['kube-system', 'kube-public'])",
        "object.metadata.name.startsWith('train')",
        "object.metadata.name.endsWith('er') && object.metadata.name.contains('rain')",
        "object.metadata.name.matches('^tr[a-z]+$') && 'xay'.matches('a')",
        "size(object.spec.containers) == 2 && object.spec.containers.size() == 2 && size('abc') == 3",
        "object.spec.containers.exists(c, c.name == 'side')",
        "object.spec.containers.all(c, c.name != 'other')",
        "object.spec.containers.exists_one(c, has(c.resources))",
        "object.spec.containers.map(c, c.name) == ['main', 'side']",
        "object.spec.containers.map(c, has(c.resources), c.name) == ['main']",
        "object.spec.containers.filter(c, c.name == 'main').size() == 1",
        "object.spec.containers[0].resources.limits.exists(k, k.startsWith('mig.das.com/'))",
        "object.metadata.labels.all(k, size(k) > 1)",
        "oldObject == null",
        "oldObject == null || oldObject.metadata.name == 'x'",
        "object.spec.none.deeper == 1 || true",
        "true || object.spec.none.deeper == 1",
        "!(object.spec.none == 1 && false)",
        "[1, 2].exists(x, 1 / (x - 1) == 1 || x == 2)",
        "object.spec.replicas > 2 ? true : object.none",
        "1 + 2 * 3 == 7 && (1 + 2) * 3 == 9 && 7 % 3 == 1 && -7 / 2 == -3 && 7 - 2 - 1 == 4",
        "-(2) == -2 && - - 2 == 2 && !!true",
        "dyn(1) == 1.0 && 1 < 1.5 && 'a' < 'b'",
        "dyn(1) != '1' && dyn(true) != 1",
        "0x10 == 16 && 10u == dyn(10) && 1e2 == 100.0",
        "'a' + 'b' == 'ab' && [1] + [2] == [1, 2]",
        "{'a': [1], 'b': [2]}.b[0] == 2 && {'a': 1} == {'a': 1}",
        r"'a\tb\u00e9\x41\101' == '''a	béAA''' && r'\d' == '\\d'",
        "int('7') == 7 && string(7) == '7' && double('0.5') == object.spec.ratio && bool('true')",
        "'a,b'.split(',').size() == 2 && ['a', 'b'].join('-') == 'a-b' && ' x '.trim() == 'x'",
        "'Abc'.lowerAscii() == 'abc' && 'abc'.substring(1, 2) == 'b' && 'aa'.replace('a', 'b', 1) == 'ba'",
        "'abc'.indexOf('c') == 2 && [3, 1].indexOf(1) == 1 && [3, 1].max() == 3 && [1, 2].sum() == 3",
        "'a1b2'.find('[0-9]') == '1' && 'a1b2'.findAll('[0-9]') == ['1', '2']",
        "quantity(object.spec.containers[0].resources.limits.cpu).isGreaterThan(quantity('1500m'))",
        "isQuantity('1Gi') && !isQuantity('x') && quantity('1Ki').asInteger() == 1024",
        "object.spec.containers.exists(c, object.spec.containers.exists(d, c.name == d.name))",
        "// a comment\ntrue",
        "timestamp('2024-01-01T00:00:00Z') < timestamp('2024-01-01T01:00:00+00:30')",
        "timestamp('2024-02-03T04:05:06Z').getMonth() == 1 && timestamp('2024-02-03T23:05:06Z').getHours('02:00') == 1",
        "timestamp('2024-03-01T00:00:00Z') - timestamp('2024-02-01T00:00:00Z') == duration('696h')",
        "duration('1h30m').getMinutes() == 90 && duration('-1.5s') < duration('0s')",
        "string(duration('90s')) == '90s' && string(timestamp('2024-01-01T00:00:00Z')) == '2024-01-01T00:00:00Z'",
        "object.?spec.?replicas.orValue(0) == 3 && object.?spec.?absent.?deeper.orValue(7) == 7",
        "object.?metadata.labels['team'].value() == 'a' && !object.?status.hasValue()",
        "object.spec.containers[?5].?name.or(optional.of('none')).value() == 'none'",
        "optional.none() == object.?nothing && !optional.ofNonZeroValue('').hasValue()",
    ],
)
def test_expressions_that_are_true(text: str) -> None:
    assert compiled(text).is_true(VALUES) is True


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("object.spec.none == 1", "no such key: none"),
        ("object.spec.containers[7].name == 'x'", "index out of bounds"),
        ("object.metadata.name.none == 'x'", "no such key: none"),
        ("oldObject.metadata.name == 'x'", "no such key: metadata"),
        ("1 / 0 == 1", "division by zero"),
        ("1 % 0 == 1", "modulus by zero"),
        ("9223372036854775807 + 1 > 0", "integer overflow"),
        ("object.metadata.name + 1 == 2", "no such overload"),
        ("object.metadata.name < 1", "no such overload"),
        ("object.metadata.name && true", "no such overload"),
        ("!object.metadata.name", "no such overload"),
        ("object.metadata.name ? true : false", "no such overload"),
        ("object.spec.ratio + 1 == 2", "no such overload"),
        ("object.?spec.?absent.value() == 1", "optional.none() dereference"),
        ("timestamp(object.metadata.name) == timestamp(0)", "type conversion error"),
        ("duration(object.metadata.name) == duration('1h')", "type conversion error"),
        ("duration('1s') + dyn(1) == duration('2s')", "no such overload"),
        ("int(object.metadata.name) == 1", "type conversion error"),
        ("'x'.matches(dyn('('))", "error parsing regexp"),
        ("quantity('x').isLessThan(quantity('1'))", "quantities must match"),
        ("true ? object.spec : object", "expected bool, got map"),
        ("object.spec.all(k, k)", "no such overload"),
        ("object.metadata.name.all(c, true)", "got 'types.String', expected iterable type"),
    ],
)
def test_what_cannot_be_evaluated_is_an_error(text: str, why: str) -> None:
    with pytest.raises(EvaluationError, match=re.escape(why)):
        compiled(text).is_true(VALUES)


@pytest.mark.parametrize(
    "text",
    [
        *("", "(", ")", "a", "object.", "object..spec", "object.spec ==", "1 +", "[1, 2", "{'a' 1}", "'open", '"a\nb"'),
        *("object.spec.foo()", "foo(1)", "size()", "size(1, 2)", "object.exists(c)", "object.all(1, true)"),
        *("has(object)", "has(1)", "Pod{name: 'x'} == 1", "b'x' == 'x'"),
        *("authorizer.path('/x') == 1", "1 + 'a' == 2", "[?1] == []", "object.?spec.optMap(s, s) == 1"),
        *("1.0 + 1 == 2.0", "1.isLoopback()", "'a'.isLoopback()", "namespaceObject.metadata.name == 'x'"),
        *("for == 1", "true true", "1 = 1", "a & b", "object.spec; true", "99999999999999999999 == 1", "'\\q' == ''"),
    ],
)
def test_what_could_never_be_evaluated_is_not_compiled(text: str) -> None:
    with pytest.raises(CelSyntaxError):
        compiled(text)


@pytest.mark.parametrize(
    "text", ["1 + 1", "'a'", "[true]", "size('x')", "object.spec.containers.map(c, true)", "object.spec"]
)
def test_conditions_must_be_true_or_false(text: str) -> None:
    with pytest.raises(ResultTypeError, match="must evaluate to bool but got"):
        compile_expression(text, ENVIRONMENT)


def test_the_place_of_an_error_is_shown() -> None:
    with pytest.raises(CelSyntaxError) as problem:
        compiled("true &&\n  foo.bar == 1")
    message = "ERROR: <input>:2:3: undeclared reference to 'foo' (in container '')\n |   foo.bar == 1\n | ..^"
    assert str(problem.value) == message


def test_too_much_work_ends() -> None:
    numbers = {"object": {"items": list(range(300))}}
    nested = "object.items.all(a, object.items.all(b, object.items.all(c, a + b + c >= 0)))"
    with pytest.raises(EvaluationError, match="cost limit"):
        compiled(nested).is_true(numbers)


@pytest.mark.parametrize(
    "text", ["(" * 500 + "1" + ")" * 500, "1" + " + 1" * 500, "!" * 5000 + "true", "a" + ".a" * 500]
)
def test_deep_nesting_is_refused_or_evaluated(text: str) -> None:
    _compiled_or_refused(text)


@pytest.mark.parametrize("text", ["true" + " && true" * 3000, "[" + "1, " * 3000 + "1] == []"])
def test_long_expressions_are_fine(text: str) -> None:
    assert isinstance(compiled(text).is_true(VALUES), bool)


PIECES = (
    *("object", "oldObject", "request", ".spec", ".metadata", ".labels", "['a']", "[0]", "(", ")", "[", "]", "{", "}"),
    *(
        "true",
        "false",
        "null",
        "1",
        "2.5",
        "'a'",
        '"b"',
        "==",
        "!=",
        "<",
        "in",
        "&&",
        "||",
        "!",
        "?",
        ":",
        ",",
        "+",
        "-",
    ),
    *(
        "*",
        "/",
        "%",
        ".exists(c, ",
        ".all(k, ",
        ".map(x, ",
        "has(",
        "size(",
        ".startsWith(",
        ".matches(",
        "c",
        "k",
        " ",
    ),
)


@settings(max_examples=500)
@given(some.lists(some.sampled_from(PIECES), max_size=25).map("".join) | some.text(max_size=60))
def test_any_text_is_evaluated_or_refused(text: str) -> None:
    _compiled_or_refused(text)


def _compiled_or_refused(text: str) -> None:
    try:
        program = compiled(text)
    except (CelSyntaxError, ResultTypeError, PlanningError):
        return
    with suppress(EvaluationError):
        program.evaluate(VALUES)


def test_rules_of_custom_kinds_see_self_and_their_escaped_names() -> None:
    environment = Environment({"self": types.DYN, "oldSelf": types.DYN}, escaped_fields=True)
    program = compile_expression("self.a__dash__b == oldSelf.__namespace__", environment)
    assert program.is_true({"self": {"a-b": 1}, "oldSelf": {"namespace": 1}})


def test_every_declared_function_is_implemented() -> None:
    for name, overloads in signatures.OVERLOADS.items():
        operator = name.strip("_").removeprefix("@")
        if name.startswith(("_", "@", "!", "-")):
            assert operator in OPERATORS or name in OPERATORS or name in ("_?_:_", "_[_]", "_[?_]"), name
            continue
        for overload in overloads:
            table = function_tables.METHODS if overload.is_method else function_tables.FUNCTIONS
            assert (name, len(overload.arguments)) in table, (name, overload)


@pytest.mark.parametrize(
    "text",
    [
        "object == object && [object, object] == [object, object]",
        "'%s'.format([object]) == ''",
        "sets.contains(object.wide, object.wide)",
        "object.long + object.long + object.long + object.long == ''",
    ],
)
def test_t02_values_that_share_their_parts_cost_no_more_than_allowed(text: str) -> None:
    """Variables can nest a value into itself: few objects, and a number of parts that is exponential."""
    deep: Any = [1]
    for _ in range(60):
        deep = [deep, deep]
    values = {"object": {"deep": deep, "wide": list(range(2000)), "long": "x" * 900_000}}
    with pytest.raises(EvaluationError, match="cost limit"):
        compiled(text).is_true(values)


def test_t02_expressions_share_a_budget() -> None:
    budget = StepBudget(1000)
    numbers = {"object": {"items": list(range(300))}}
    program = compiled("object.items.all(a, a >= 0)")
    assert program.is_true(numbers, budget)
    with pytest.raises(EvaluationError, match="cost limit"):
        program.is_true(numbers, budget)
