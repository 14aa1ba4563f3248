"""Expressions over times, spans and values that may be missing: one kind whose rules are the expressions."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.contract.raw_requests import RawRequests, until
from tests.pocketkube.match_conditions import configuration

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
TRUE = [
    "self.when < timestamp('2024-06-01T00:00:00Z')",
    "self.when + self.span == timestamp('2024-01-01T01:30:00Z')",
    "self.when.getFullYear() == 2024 && self.when.getDayOfWeek() == 1 && self.when.getHours('-01:00') == 23",
    "self.span.getMinutes() == 90 && self.span > duration('1h')",
    "timestamp('2024-03-01T00:00:00Z') - timestamp('2024-02-01T00:00:00Z') == duration('696h')",
    "self.?text.orValue('none') == 'some' && self.?absent.orValue('none') == 'none'",
    "!self.?absent.hasValue() && self.?text.hasValue() && self.?text.value() == 'some'",
    "self.list[?0].orValue(0) == 1 && self.list[?9].orValue(7) == 7",
    "self.?absent.or(optional.of('other')).value() == 'other'",
    "optional.ofNonZeroValue('').hasValue() == false && optional.none().hasValue() == false",
    "self.map.?x.orValue('') == 'y' && self.map[?'z'].orValue('d') == 'd'",
    "string(self.span) == '5400s'",
]
FALSE = ["self.when > timestamp('2024-06-01T00:00:00Z')", "self.span < duration('1s')", "self.?text.value() == 'x'"]
FIELDS = {
    "when": {"type": "string", "format": "date-time"},
    "span": {"type": "string", "format": "duration"},
    "text": {"type": "string"},
    "absent": {"type": "string"},
    "list": {"type": "array", "items": {"type": "integer"}},
    "map": {"type": "object", "additionalProperties": {"type": "string"}},
}
VALUES = {"when": "2024-01-01T00:00:00Z", "span": "1h30m", "text": "some", "list": [1], "map": {"x": "y"}}


class Ruled:
    def __init__(self, ask: RawRequests, namespace: str) -> None:
        self._ask = ask
        self._group = f"g{secrets.token_hex(3)}.example.io"
        self.path = f"/apis/{self._group}/v1/namespaces/{namespace}/ruleds"

    async def define(self) -> None:
        rules = [{"rule": rule, "message": rule} for rule in (*TRUE, *FALSE)]
        inner = {"type": "object", "properties": FIELDS, "x-kubernetes-validations": rules}
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": inner}}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        names = {"plural": "ruleds", "singular": "ruled", "kind": "Ruled"}
        spec = {"group": self._group, "scope": "Namespaced", "names": names, "versions": [version]}
        body = {"metadata": {"name": f"ruleds.{self._group}"}, "spec": spec}
        made = await self._ask("POST", DEFINITIONS, body)
        assert made.code == 201, made.body

        async def served() -> bool:
            return (await self._ask("GET", self.path)).code == 200

        await until(served, "the kind is served")

    async def forget(self) -> None:
        await self._ask("DELETE", f"{DEFINITIONS}/ruleds.{self._group}")

    async def create(self) -> Any:
        body = {"apiVersion": f"{self._group}/v1", "kind": "Ruled", "metadata": {"name": "x"}, "spec": VALUES}
        return await self._ask("POST", self.path, body)


@pytest.fixture
async def ruled(ask: RawRequests, namespace: str) -> AsyncIterator[Ruled]:
    kind = Ruled(ask, namespace)
    await kind.define()
    yield kind
    await kind.forget()


async def test_rules_over_times_and_missing_values(ruled: Ruled) -> None:
    answer = await ruled.create()
    assert answer.code == 422
    failed = [cause["message"].removeprefix('Invalid value: "object": ') for cause in answer.body["details"]["causes"]]
    failed = [message.removeprefix("Invalid value: ").partition("}: ")[2] or message for message in failed]
    assert sorted(failed) == sorted(FALSE), answer.body


@pytest.mark.parametrize("expression", ["object.metadata.name", "1 + 'a' == 2", "object.spec ==", "nobody == 1"])
async def test_conditions_that_can_never_hold_are_not_registered(ask: RawRequests, expression: str) -> None:
    answer = await ask("POST", CONFIGURATIONS, configuration(expression), dryRun="All")
    assert answer.causes == [("FieldValueInvalid", "webhooks[0].matchConditions[0].expression")], answer.body
