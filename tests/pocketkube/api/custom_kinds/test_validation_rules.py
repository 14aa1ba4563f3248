"""Rules that custom kinds bring along: refused when they cannot be evaluated, and kept on every write."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pocketkube.api.content.serving import Server, serving

Obj = dict[str, Any]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/rules.example.com/v1/namespaces/default/widgets"
NUMBER: Obj = {"type": "integer"}
SPEC: Obj = {
    "type": "object",
    "properties": {
        "a": NUMBER,
        "b": NUMBER,
        "name": {
            "type": "string",
            "x-kubernetes-validations": [{"rule": "self.startsWith('x')", "message": "x first"}],
        },
        "list": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"n": NUMBER},
                "x-kubernetes-validations": [{"rule": "self.n > 0"}],
            },
        },
        "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "immutable"}]},
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.a) || !has(self.b) || self.a <= self.b", "message": "a must not exceed b"},
        {
            "rule": "!has(self.a) || self.a != 7",
            "messageExpression": "'a is ' + string(self.a)",
            "reason": "FieldValueForbidden",
            "fieldPath": ".a",
        },
        {"rule": "!has(self.a) || self.a != 8"},
    ],
}


async def define(server: Server, spec: Obj) -> tuple[int, Obj]:
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    body = {
        "metadata": {"name": "widgets.rules.example.com"},
        "spec": {
            "group": "rules.example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version],
        },
    }
    return await server.send("POST", DEFINITIONS, body)


def widget(**spec: Any) -> Obj:
    return {"apiVersion": "rules.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"a": 3, "b": 2}, 'spec: Invalid value: "object": a must not exceed b'),
        ({"a": 7}, "spec.a: Forbidden: a is 7"),
        ({"a": 8}, 'spec: Invalid value: "object": failed rule: !has(self.a) || self.a != 8'),
        ({"name": "y"}, 'spec.name: Invalid value: "string": x first'),
        ({"list": [{"n": 1}, {"n": 0}]}, 'spec.list[1]: Invalid value: "object": failed rule: self.n > 0'),
        ({"list": [{}]}, 'spec.list[0]: Invalid value: "object": no such key: n evaluating rule: self.n > 0'),
    ],
)
async def test_a_broken_rule_is_refused_as_a_real_server_words_it(spec: Obj, why: str) -> None:
    async with serving() as server:
        assert (await define(server, SPEC))[0] == 201
        assert await server.refused(WIDGETS, widget(**spec)) == f'Widget.rules.example.com "w" is invalid: {why}'


async def test_rules_about_changes_see_what_was_there() -> None:
    async with serving() as server:
        await define(server, SPEC)
        await server.create(WIDGETS, widget(fixed="a", a=1, b=2))
        merge = {"content-type": "application/merge-patch+json"}
        code, answer = await server.send("PATCH", f"{WIDGETS}/w", {"spec": {"fixed": "b"}}, headers=merge)
        assert code == 422
        assert answer["message"].endswith('spec.fixed: Invalid value: "string": immutable')
        assert (await server.send("PATCH", f"{WIDGETS}/w", {"spec": {"a": 2}}, headers=merge))[0] == 200


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"rule": "foo"}, "undeclared reference to 'foo'"),
        ({"rule": "1 + 1"}, "cel expression must evaluate to a bool"),
        ({"rule": ""}, "rule is not specified"),
        ({"rule": "true", "messageExpression": "bar("}, "compilation failed"),
    ],
)
async def test_rules_that_cannot_be_evaluated_are_not_registered(rule: Obj, why: str) -> None:
    async with serving() as server:
        code, answer = await define(server, {"type": "object", "x-kubernetes-validations": [rule]})
    assert code == 422
    assert why in answer["message"]
