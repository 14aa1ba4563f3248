"""New nodes take no pods until they are ready; nodes that are not ready lose their pods, unless no node is ready."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.contract.raw_requests import STRATEGIC_PATCH, RawRequests, until

NODES = "/api/v1/nodes"
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


class Machines:
    """Nodes without a kubelet: the test sets their conditions."""

    def __init__(self, ask: RawRequests, prefix: str) -> None:
        self._ask = ask
        self.names = [f"{prefix}-a", f"{prefix}-b"]

    async def join(self, name: str) -> Any:
        return await self._ask("POST", NODES, {"metadata": {"name": name}})

    async def say_ready(self, name: str, status: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": status, "reason": "Said", "message": "by the test"}
        condition |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
        patch = {"status": {"conditions": [condition]}}
        assert (await self._ask("PATCH", f"{NODES}/{name}/status", patch, STRATEGIC_PATCH)).code == 200

    async def taints(self, name: str) -> list[tuple[str, str]]:
        node = (await self._ask("GET", f"{NODES}/{name}")).body
        return sorted((each["key"], each["effect"]) for each in node["spec"].get("taints") or ())

    async def until_taints(self, name: str, *wanted: tuple[str, str]) -> None:
        async def holds() -> bool:
            return await self.taints(name) == sorted(wanted)

        await until(holds, f"{name} has the taints {wanted}")


@pytest.fixture
async def machines(ask: RawRequests, namespace: str) -> AsyncIterator[Machines]:
    made = Machines(ask, namespace)
    yield made
    for name in made.names:
        await ask("DELETE", f"{NODES}/{name}")


async def test_a_new_node_is_tainted_until_it_is_ready(ask: RawRequests, machines: Machines) -> None:
    name = machines.names[0]
    joined = await machines.join(name)
    assert joined.body["spec"] == {"taints": [{"key": NOT_READY, "effect": "NoSchedule"}]}
    await machines.say_ready(name, "True")
    await machines.until_taints(name)
    assert (await ask("PATCH", f"{NODES}/{name}", {"spec": {"unschedulable": True}}, STRATEGIC_PATCH)).code == 200
    await machines.until_taints(name, (UNSCHEDULABLE, "NoSchedule"))


async def test_where_no_node_is_ready_no_pod_is_evicted(machines: Machines) -> None:
    name = machines.names[0]
    await machines.join(name)
    for status, key in (("True", None), ("False", NOT_READY), ("Unknown", UNREACHABLE), ("True", None)):
        await machines.say_ready(name, status)
        await machines.until_taints(name, *([(key, "NoSchedule")] if key else []))


async def test_pods_of_a_node_that_is_not_ready_are_evicted(ask: RawRequests, machines: Machines, pods: str) -> None:
    well, ill = machines.names
    for name in (well, ill):
        await machines.join(name)
        await machines.say_ready(name, "True")
        await machines.until_taints(name)
    patient = [{"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}]
    for name, tolerations in (("leaves", patient), ("stays", [{"operator": "Exists"}])):
        spec = {"nodeName": ill, "tolerations": tolerations, "containers": [{"name": "c", "image": "b"}]}
        assert (await ask("POST", pods, {"metadata": {"name": name}, "spec": spec})).code == 201
    await machines.say_ready(ill, "Unknown")
    await machines.until_taints(ill, (UNREACHABLE, "NoExecute"), (UNREACHABLE, "NoSchedule"))

    async def leaving() -> bool:
        return "deletionTimestamp" in (await ask("GET", f"{pods}/leaves")).meta

    await until(leaving, "the pod is deleted")
    assert "deletionTimestamp" not in (await ask("GET", f"{pods}/stays")).meta
    for name in ("leaves", "stays"):
        await ask("DELETE", f"{pods}/{name}", gracePeriodSeconds="0")
