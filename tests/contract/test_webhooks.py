"""Admission webhooks as users register them: order, patches, refusals, failures."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from apportion.cluster.certificates import Authority
from tests.contract.raw_requests import MERGE_PATCH, RawRequests, config_map, until
from tests.environments.cluster import Cluster

JSON = dict[str, Any]
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"


@dataclass
class Hooks:
    """Registers webhooks of the test's own server for config maps of the test's namespace."""

    ask: RawRequests
    namespace: str
    port: int
    bundle: str

    def hook(self, name: str, path: str, **more: Any) -> JSON:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
        here = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}
        return {
            "name": f"{name}.example.io",
            "clientConfig": {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": self.bundle},
            "rules": [rule],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 10,
            "namespaceSelector": here,
            **more,
        }

    async def register(self, *hooks: JSON, mutating: bool = False, name: str = "") -> None:
        """Make a configuration, and wait until the server has taken notice of it."""
        plural = "mutatingwebhookconfigurations" if mutating else "validatingwebhookconfigurations"
        full = f"{self.namespace}-{name or 'hooks'}"
        answer = await self.ask(
            "POST", f"{REGISTRATION}/{plural}", {"metadata": {"name": full}, "webhooks": list(hooks)}
        )
        assert answer.code == 201, answer.body
        # Servers read configurations through a cache: a marker of a configuration registered later proves the earlier.
        marker = self.hook("marker", "/warn", objectSelector={"matchLabels": {"marker": full}})
        await self.ask(
            "POST",
            f"{REGISTRATION}/validatingwebhookconfigurations",
            {"metadata": {"name": f"{full}-marker"}, "webhooks": [marker]},
        )

        async def noticed() -> bool:
            probe = config_map("probe", labels={"marker": full})
            answer = await self.ask("POST", f"/api/v1/namespaces/{self.namespace}/configmaps", probe, dryRun="All")
            return any("mind the gap" in each for each in answer.warnings) or answer.code >= 400

        await until(noticed, "the webhooks are called")
        await asyncio.sleep(0.2)


@pytest.fixture
def webhook_server(any_cluster: Cluster, tmp_path: Path) -> Iterator[tuple[int, str]]:
    authority = Authority.create("webhooks")
    pair = authority.issue(["localhost"], ["127.0.0.1"], 1)
    pair.save(tmp_path / "tls.crt", tmp_path / "tls.key")
    script = Path(__file__).with_name("webhook_server.py")
    enter: list[str] = getattr(any_cluster, "enter", [])
    process = subprocess.Popen(
        [*enter, sys.executable, str(script), str(tmp_path / "tls.crt"), str(tmp_path / "tls.key")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    port = int(process.stdout.readline())
    yield port, base64.b64encode(authority.bundle).decode()
    process.terminate()
    process.wait(timeout=10)


@pytest.fixture
async def hooks(ask: RawRequests, namespace: str, webhook_server: tuple[int, str]) -> AsyncIterator[Hooks]:
    port, bundle = webhook_server
    yield Hooks(ask, namespace, port, bundle)
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        for item in (await ask("GET", f"{REGISTRATION}/{plural}")).body["items"]:
            if item["metadata"]["name"].startswith(namespace):
                await ask("DELETE", f"{REGISTRATION}/{plural}/{item['metadata']['name']}")

    async def forgotten() -> bool:
        probe = config_map("probe", labels={"marker": f"{namespace}-hooks"})
        answer = await ask("POST", f"/api/v1/namespaces/{namespace}/configmaps", probe, dryRun="All")
        return answer.code == 201 and not answer.warnings

    await until(forgotten, "the webhooks are not called any more")


async def test_mutating_webhooks_run_in_order_of_their_names(hooks: Hooks, maps: str) -> None:
    await hooks.register(hooks.hook("x", "/annotate/b"), hooks.hook("y", "/annotate/c"), mutating=True, name="b")
    await hooks.register(hooks.hook("z", "/annotate/a"), mutating=True, name="a")
    made = await hooks.ask("POST", maps, config_map("one"))
    assert made.meta["annotations"]["trail"] == "abc"


async def test_a_webhook_that_asks_is_called_again_after_others_changed_the_object(hooks: Hooks, maps: str) -> None:
    again = hooks.hook("a", "/annotate/a", reinvocationPolicy="IfNeeded")
    await hooks.register(again, hooks.hook("b", "/annotate/b"), mutating=True)
    assert (await hooks.ask("POST", maps, config_map("one"))).meta["annotations"]["trail"] == "aba"


async def test_a_refusal_carries_the_webhooks_words(hooks: Hooks, maps: str) -> None:
    await hooks.register(hooks.hook("no", "/deny", objectSelector={"matchLabels": {"deny": "me"}}))
    refused = await hooks.ask("POST", maps, config_map("one", labels={"deny": "me"}))
    assert (refused.code, refused.reason) == (418, "Teapot")
    assert refused.message == 'admission webhook "no.example.io" denied the request: not today'
    assert (await hooks.ask("POST", maps, config_map("two"))).code == 201
    assert (await hooks.ask("GET", f"{maps}/one")).code == 404


async def test_a_refusal_without_words(hooks: Hooks, maps: str) -> None:
    await hooks.register(hooks.hook("no", "/deny-plainly", objectSelector={"matchLabels": {"deny": "me"}}))
    refused = await hooks.ask("POST", maps, config_map("one", labels={"deny": "me"}))
    assert refused.code == 400
    assert refused.message == 'admission webhook "no.example.io" denied the request without explanation'


async def test_warnings_reach_the_caller(hooks: Hooks, maps: str) -> None:
    await hooks.register(hooks.hook("warn", "/warn"))
    assert (await hooks.ask("POST", maps, config_map("one"))).warnings == ('299 - "mind the gap"',)


async def test_webhooks_are_told_what_happens(hooks: Hooks, maps: str, namespace: str) -> None:
    await hooks.register(hooks.hook("tell", "/tell", objectSelector={"matchLabels": {"tell": "me"}}))

    def told(answer: Any) -> JSON:
        text = answer.warnings[0].removeprefix('299 - "').removesuffix('"').replace('\\"', '"')
        facts: JSON = json.loads(text)
        return facts

    common = {"resource": "configmaps", "kind": "ConfigMap", "sub": "", "namespace": namespace, "user": "admin"}
    created = await hooks.ask("POST", maps, config_map("one", labels={"tell": "me"}), dryRun="All")
    assert told(created) == common | {
        "operation": "CREATE",
        "name": "one",
        "dryRun": True,
        "object": True,
        "old": False,
        "options": "CreateOptions",
    }
    await hooks.ask("POST", maps, config_map("one", labels={"tell": "me"}))
    updated = await hooks.ask("PATCH", f"{maps}/one", {"data": {"x": "y"}}, MERGE_PATCH)
    assert told(updated) == common | {
        "operation": "UPDATE",
        "name": "one",
        "dryRun": False,
        "object": True,
        "old": True,
        "options": "UpdateOptions",
    }
    deleted = await hooks.ask("DELETE", f"{maps}/one")
    assert told(deleted) == common | {
        "operation": "DELETE",
        "name": "one",
        "dryRun": False,
        "object": False,
        "old": True,
        "options": "DeleteOptions",
    }


async def test_a_name_that_is_to_be_generated_is_not_known_yet(hooks: Hooks, maps: str) -> None:
    await hooks.register(
        hooks.hook("tell", "/tell", objectSelector={"matchLabels": {"tell": "me"}}),
        hooks.hook("named", "/annotate/a", matchConditions=[{"name": "n", "expression": "has(object.metadata.name)"}]),
        mutating=True,
    )
    body = {"metadata": {"generateName": "x-", "labels": {"tell": "me"}}}
    made = await hooks.ask("POST", maps, body)
    assert '\\"name\\": \\"\\"' in made.warnings[0]
    assert made.meta["name"].startswith("x-")
    assert "annotations" not in made.meta


async def test_match_conditions_choose_by_expression(hooks: Hooks, maps: str) -> None:
    condition = {"name": "named", "expression": "object.metadata.name.startsWith('no-')"}
    await hooks.register(hooks.hook("no", "/deny", matchConditions=[condition]))
    assert (await hooks.ask("POST", maps, config_map("no-way"))).code == 418
    assert (await hooks.ask("POST", maps, config_map("yes"))).code == 201


@pytest.mark.parametrize("path", ["/nonsense", "/wronguid", "/slow"])
async def test_a_failing_webhook_fails_the_request_or_is_passed_over_as_configured(
    hooks: Hooks, maps: str, path: str
) -> None:
    strict = hooks.hook("strict", path, timeoutSeconds=1, objectSelector={"matchLabels": {"strict": "yes"}})
    lax = hooks.hook("lax", path, timeoutSeconds=1, failurePolicy="Ignore")
    await hooks.register(strict | {"failurePolicy": "Fail"}, lax)
    passed = await hooks.ask("POST", maps, config_map("lax"))
    assert passed.code == 201
    failed = await hooks.ask("POST", maps, config_map("strict", labels={"strict": "yes"}))
    assert (failed.code, failed.reason) == (500, "InternalError")
    assert 'failed calling webhook "strict.example.io"' in failed.message
    assert (await hooks.ask("GET", f"{maps}/strict")).code == 404


async def test_an_unreachable_webhook_too(hooks: Hooks, maps: str) -> None:
    chosen = {"matchLabels": {"chosen": "yes"}}
    hook = hooks.hook("gone", "/x", objectSelector=chosen, failurePolicy="Fail")
    hook["clientConfig"]["url"] = "https://127.0.0.1:1/x"
    await hooks.register(hook)
    failed = await hooks.ask("POST", maps, config_map("one", labels={"chosen": "yes"}))
    assert (failed.code, failed.reason) == (500, "InternalError")
    assert 'failed calling webhook "gone.example.io": failed to call webhook' in failed.message
    assert (await hooks.ask("POST", maps, config_map("two"))).code == 201


async def test_a_patch_that_does_not_apply_fails_even_where_failures_are_ignored(hooks: Hooks, maps: str) -> None:
    chosen = {"matchLabels": {"chosen": "yes"}}
    await hooks.register(hooks.hook("bad", "/badpatch", objectSelector=chosen, failurePolicy="Fail"), mutating=True)
    failed = await hooks.ask("POST", maps, config_map("one", labels={"chosen": "yes"}))
    assert (failed.code, failed.reason) == (500, "InternalError")


async def test_a_dry_run_is_refused_where_a_webhook_has_side_effects(hooks: Hooks, maps: str) -> None:
    chosen = {"matchLabels": {"chosen": "yes"}}
    await hooks.register(hooks.hook("a", "/warn", objectSelector=chosen, sideEffects="NoneOnDryRun"))
    dry = await hooks.ask("POST", maps, config_map("one", labels={"chosen": "yes"}), dryRun="All")
    assert (dry.code, len(dry.warnings)) == (201, 1)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "not-qualified"}, "webhooks[0].name"),
        ({"sideEffects": "Unknown"}, "webhooks[0].sideEffects"),
        ({"failurePolicy": "Maybe"}, "webhooks[0].failurePolicy"),
        ({"timeoutSeconds": 99}, "webhooks[0].timeoutSeconds"),
        ({"admissionReviewVersions": ["v9"]}, "webhooks[0].admissionReviewVersions"),
        ({"clientConfig": {"url": "http://127.0.0.1/x"}}, "webhooks[0].clientConfig.url"),
        ({"clientConfig": {}}, "webhooks[0].clientConfig"),
        ({"matchConditions": [{"name": "a", "expression": "object.("}]}, "webhooks[0].matchConditions[0].expression"),
    ],
)
async def test_bad_registrations_are_refused_by_field(
    ask: RawRequests, namespace: str, change: JSON, field: str
) -> None:
    hook = Hooks(ask, namespace, 1, "").hook("x", "/x")
    del hook["clientConfig"]["caBundle"]
    body = {"metadata": {"name": namespace}, "webhooks": [hook | change]}
    answer = await ask("POST", f"{REGISTRATION}/validatingwebhookconfigurations", body)
    assert (answer.code, answer.reason) == (422, "Invalid"), answer.body
    assert any(cause == field for _, cause in answer.causes), answer.causes
