"""Policies and bindings as tests write them, and the wait until a server obeys them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.contract.raw_requests import Answer, RawRequests, config_map, until
from tests.environments.audit import SHARED

JSON = dict[str, Any]
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{REGISTRATION}/validatingadmissionpolicies"
BINDINGS = f"{REGISTRATION}/validatingadmissionpolicybindings"

NO_PROBES = {"matchExpressions": [{"key": "marker", "operator": "DoesNotExist"}]}


def rule(*resources: str, operations: str = "CREATE UPDATE", group: str = "", version: str = "v1", **more: Any) -> JSON:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": operations.split(),
        "resources": list(resources) or ["configmaps"],
        **more,
    }


def policy(name: str, *validations: str | JSON, rules: list[JSON] | None = None, **spec: Any) -> JSON:
    match = {"objectSelector": NO_PROBES, **spec.pop("match", {})}
    written = [{"expression": each} if isinstance(each, str) else each for each in validations]
    return {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": rules or [rule()], **match},
            "validations": written,
            **spec,
        },
    }


def binding(name: str, policy_name: str, **spec: Any) -> JSON:
    return {"metadata": {"name": name}, "spec": {"policyName": policy_name, "validationActions": ["Deny"], **spec}}


@dataclass
class Policies:
    """Registers policies that are about the test's namespace, and forgets them at its end."""

    ask: RawRequests
    namespace: str
    made: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.namespace

    @property
    def here(self) -> JSON:
        """Matches the namespace of the test alone."""
        return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}}

    async def apply(self, *validations: str | JSON, bound: JSON | None = None, **spec: Any) -> None:
        """One policy with one binding, both with the name of the namespace, in force."""
        await self.register(policy(self.name, *validations, **spec))
        await self.bind(binding(self.name, self.name, **{"matchResources": self.here, **(bound or {})}))
        await self.obeyed()

    async def register(self, body: JSON) -> Answer:
        return await self._create(POLICIES, body)

    async def bind(self, body: JSON) -> Answer:
        return await self._create(BINDINGS, body)

    async def obeyed(self) -> None:
        """Servers read policies through a cache: one that was registered later proves the earlier."""
        marker = f"{self.name}-marker-{len(self.made)}"
        match = {"objectSelector": {"matchLabels": {"marker": marker}}}
        await self.register(policy(marker, {"expression": "false", "message": "noticed"}, match=match))
        await self.bind(binding(marker, marker, matchResources=self.here))
        probe = config_map("probe", labels={"marker": marker})

        async def noticed() -> bool:
            answer = await self.create(probe)
            return answer.code != 201 and "noticed" in answer.message

        await until(noticed, "the policies are obeyed")
        await asyncio.sleep(0.2)

    async def create(self, body: JSON, path: str = "") -> Answer:
        """A dry run, by default of a config map."""
        return await self.ask("POST", path or f"/api/v1/namespaces/{self.namespace}/configmaps", body, dryRun="All")

    async def forget(self) -> None:
        for path in reversed(self.made):
            await self.ask("DELETE", path)

    async def _create(self, path: str, body: JSON) -> Answer:
        answer = await self.ask("POST", path, body)
        assert answer.code == 201, answer.body
        self.made.append(f"{path}/{body['metadata']['name']}")
        return answer


@asynccontextmanager
async def registering(ask: RawRequests, namespace: str) -> AsyncIterator[Policies]:
    found = Policies(ask, namespace)
    await _keep_reading_parameters(ask)
    try:
        yield found
    finally:
        await found.forget()


async def _keep_reading_parameters(ask: RawRequests) -> None:
    """A policy that outlives the tests, so that parameters of its kind are always read.

    kube-apiserver stops to read a kind when the last policy with such parameters is deleted, and never starts again.
    """
    nothing = {"objectSelector": {"matchLabels": {"selected": "never"}}}
    kept = policy("reads-parameters", "true", match=nothing, paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
    reference = {"name": "none", "parameterNotFoundAction": "Allow"}
    for path, body in (
        (POLICIES, kept),
        (BINDINGS, binding("reads-parameters", "reads-parameters", paramRef=reference)),
    ):
        body["metadata"]["labels"] = {SHARED: "yes"}
        answer = await ask("POST", path, body)
        assert answer.code in (201, 409), answer


def denial(answer: Answer) -> str:
    """What the policy said, without the names of object, policy and binding."""
    return answer.message.partition("denied request: ")[2]
