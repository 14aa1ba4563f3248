"""Expressions of policies: compiled and evaluated with the same verdicts and messages by both servers.

`expressions.json` holds what kube-apiserver 1.34 says. All expressions that compile are validations that only warn, a
few to a policy, so that one dry run per policy shows the verdict on each; those that do not are causes of one refusal.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.policies import POLICIES, Policies, binding, policy, registering, rule
from tests.contract.raw_requests import RawRequests

RECORDED: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("expressions.json").read_text())
# Warnings are cut when they are long: a policy has as many expressions as fit into the headers of one answer.
MOST_CHARACTERS = 1500
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "labels": {"app": "web", "case": ""}, "annotations": {"a-b": "x"}},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {"name": "a", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
                    {"name": "b", "image": "j"},
                ]
            },
        },
    },
}
VARIABLES: dict[str, Any] = {
    "variables": [{"name": "s", "expression": "'a'"}],
    "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
}


@pytest.fixture
async def policies(ask: RawRequests, namespace: str) -> AsyncIterator[Policies]:
    async with registering(ask, namespace) as found:
        yield found


async def test_expressions_that_do_not_compile_are_refused_with_the_same_words(ask: RawRequests) -> None:
    texts = list(RECORDED["refused"])
    answer = await ask("POST", POLICIES, policy("refused", *texts, **VARIABLES), dryRun="All")
    messages = {each["field"]: each["message"] for each in answer.body["details"]["causes"]}
    found = {text: messages.get(f"spec.validations[{index}].expression", "") for index, text in enumerate(texts)}
    assert found == RECORDED["refused"]


async def test_expressions_have_the_same_verdicts_and_messages(policies: Policies, namespace: str) -> None:
    groups = list(_groups(list(RECORDED["evaluated"])))
    for number, texts in enumerate(groups):
        name = f"{namespace}-{number}"
        match = {"objectSelector": {"matchLabels": {"case": name}}}
        rules = [rule("deployments", group="apps")]
        await policies.register(policy(name, *texts, rules=rules, match=match, **VARIABLES))
        await policies.bind(binding(name, name, validationActions=["Warn"]))
    await policies.obeyed()
    found: dict[str, str] = {}
    for number, texts in enumerate(groups):
        body = {**DEPLOYMENT, "metadata": {**DEPLOYMENT["metadata"], "labels": {"app": "web", "case": ""}}}
        body["metadata"]["labels"]["case"] = f"{namespace}-{number}"
        answer = await policies.create(body, f"/apis/apps/v1/namespaces/{namespace}/deployments")
        assert answer.code == 201, answer.body
        warnings = [_unquoted(each) for each in answer.warnings]
        found |= {text: next((each for each in warnings if _is_about(each, text)), "") for text in texts}
    assert found == RECORDED["evaluated"]


def _groups(texts: list[str]) -> Iterator[list[str]]:
    group: list[str] = []
    for text in texts:
        if group and sum(map(len, group)) + len(text) + 150 * (len(group) + 1) > MOST_CHARACTERS:
            yield group
            group = []
        group.append(text)
    yield group


def _unquoted(warning: str) -> str:
    text = warning.removeprefix('299 - "').removesuffix('"').replace('\\"', '"').replace("\\\\", "\\")
    return text.partition(": ")[2]


def _is_about(message: str, text: str) -> bool:
    return message == f"failed expression: {text}" or message.startswith(f"expression '{text}' resulted in error")
