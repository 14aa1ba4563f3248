"""S10: managementState Removed removes the planes without affecting running pods, and Managed restores them."""

from __future__ import annotations

from typing import Any

from apportion.apis import kinds, names
from apportion.apis.kinds import Kind
from apportion.cluster import errors
from apportion.cluster.client import Client, PatchType
from tests.builders import claims, pods
from tests.environments.waiting import eventually
from tests.operator.test_operator import (
    AGENTS,
    NAMESPACE,
    SCHEDULER,
    WEBHOOK,
    WORKLOADS,
    change,
    operating,
    set_status,
    status,
    told,
    workload,
)

TEMPLATES = Kind("", "v1", "podtemplates", "PodTemplate")
CONFIGURATIONS = (
    (kinds.MUTATING_WEBHOOKS, names.SLICE_WEBHOOK_CONFIGURATION),
    (kinds.VALIDATING_WEBHOOKS, names.GUARD_WEBHOOK_CONFIGURATION),
)


async def test_s10_removed_takes_the_planes_away_and_managed_brings_them_back_as_they_were() -> None:
    async with operating() as client:
        await client.patch(SCHEDULER.kind, SCHEDULER.name, {"spec": {"replicas": 3}}, namespace=NAMESPACE)
        await change(client, {"managementState": "Removed"})
        for plane in WORKLOADS:
            await eventually(lambda plane=plane: gone(client, plane.kind, plane.name))
        for kind, name in CONFIGURATIONS:
            await eventually(lambda kind=kind, name=name: is_on(client, kind, name, wanted=False))
        available = await eventually(lambda: status(client, "Available", "False"))
        assert await eventually(lambda: reason(client, "Available", "Removed"))
        assert available["message"]
        await eventually(lambda: status(client, "Progressing", "False"))
        await eventually(lambda: status(client, "Degraded", "False"))

        await change(client, {"managementState": "Managed", "logLevel": "Debug"})
        for plane in WORKLOADS:
            await eventually(lambda plane=plane: there(client, plane.kind, plane.name))
        for kind, name in CONFIGURATIONS:
            await eventually(lambda kind=kind, name=name: is_on(client, kind, name, wanted=True))
        assert (await workload(client, SCHEDULER))["spec"]["replicas"] == 3
        await eventually(lambda: told(client, SCHEDULER, "APPORTION_LOG_LEVEL", "Debug"))
        await eventually(lambda: gone(client, kinds.CONFIG_MAPS, "das-operator-removed"))
        await set_status(client, WEBHOOK, 1)
        await set_status(client, SCHEDULER, 3)
        await set_status(client, AGENTS, 1)
        await eventually(lambda: status(client, "Available", "True"))


async def test_s10_agents_stay_until_the_last_slice_is_given_back() -> None:
    async with operating() as client:
        claim = claims.claim(pods.pod("p", uid="u"), node="n", gpu="GPU-1", start=0, containers=["c"])
        claim.metadata.finalizers = []
        await client.create(kinds.ALLOCATION_CLAIMS, claim, namespace=NAMESPACE)
        await change(client, {"managementState": "Removed"})
        await eventually(lambda: gone(client, SCHEDULER.kind, SCHEDULER.name))
        progressing = await eventually(lambda: status(client, "Progressing", "True"))
        assert "1 slices" in progressing["message"]
        assert not await gone(client, AGENTS.kind, AGENTS.name)
        await client.delete(kinds.ALLOCATION_CLAIMS, "u-c-0", namespace=NAMESPACE)
        await eventually(lambda: gone(client, AGENTS.kind, AGENTS.name))
        await eventually(lambda: status(client, "Progressing", "False"))


async def test_s10_nvidias_device_plugin_on_a_managed_node_is_reported_as_degraded() -> None:
    async with operating() as client:
        for plane, pods in ((WEBHOOK, 2), (SCHEDULER, 1), (AGENTS, 2)):
            await set_status(client, plane, pods)
        await eventually(lambda: status(client, "Degraded", "False"))
        await client.create(kinds.NODE_ACCELERATORS, {"metadata": {"name": "n1"}}, namespace=NAMESPACE)
        await say(client, "n1", "ForeignDevicePlugin", "NVIDIA's device plugin runs on this node")
        degraded = await eventually(lambda: reason(client, "Degraded", "ForeignDevicePlugin"))
        assert degraded["status"] == "True"
        assert degraded["message"] == "node n1: NVIDIA's device plugin runs on this node"
        await say(client, "n1", "Serving", "", ready="True")
        await eventually(lambda: status(client, "Degraded", "False"))


async def test_s10_an_agent_that_is_starting_is_not_degraded() -> None:
    async with operating() as client:
        for plane, pods in ((WEBHOOK, 2), (SCHEDULER, 1), (AGENTS, 2)):
            await set_status(client, plane, pods)
        await client.create(kinds.NODE_ACCELERATORS, {"metadata": {"name": "n1"}}, namespace=NAMESPACE)
        await say(client, "n1", "Starting", "not yet")
        await client.create(kinds.NODE_ACCELERATORS, {"metadata": {"name": "n2"}}, namespace=NAMESPACE)
        await say(client, "n2", "DriverUnavailable", "libnvidia-ml.so.1 is missing")
        degraded = await eventually(lambda: reason(client, "Degraded", "DriverUnavailable"))
        assert degraded["message"] == "node n2: libnvidia-ml.so.1 is missing"


async def say(client: Client, node: str, why: str, message: str, *, ready: str = "False") -> None:
    entry = {
        "type": "Ready",
        "status": ready,
        "reason": why,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    body = {"status": {"conditions": [entry]}}
    await client.patch(kinds.NODE_ACCELERATORS, node, body, namespace=NAMESPACE, subresource="status")


async def reason(client: Client, kind: str, wanted: str) -> dict[str, Any] | None:
    current = await client.get(kinds.DAS_OPERATORS, "cluster", namespace=NAMESPACE)
    entries = current.get("status", {}).get("conditions", [])
    return next((entry for entry in entries if entry["type"] == kind and entry["reason"] == wanted), None)


async def test_t04_a_removed_workload_that_differs_from_the_shipped_one_is_not_restored_and_this_is_reported() -> None:
    async with operating() as client:
        image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "example.com/mirror"}]
        await client.patch(SCHEDULER.kind, SCHEDULER.name, image, namespace=NAMESPACE, how=PatchType.json)
        await change(client, {"managementState": "Removed"})
        await eventually(lambda: gone(client, SCHEDULER.kind, SCHEDULER.name))
        await change(client, {"managementState": "Managed"})
        degraded = await eventually(lambda: reason(client, "Degraded", "ChangeRefused"))
        assert "das-operator-workloads" in degraded["message"]
        parameter = [{**image[0], "path": "/template/spec/containers/0/image"}]
        await client.patch(TEMPLATES, SCHEDULER.name, parameter, namespace=NAMESPACE, how=PatchType.json)
        await eventually(lambda: there(client, SCHEDULER.kind, SCHEDULER.name))


async def is_on(client: Client, kind: Kind, name: str, *, wanted: bool) -> bool:
    webhooks = (await client.get(kind, name))["webhooks"]
    off = {"name": "is-managed", "expression": "false"}
    return all((off not in webhook["matchConditions"]) == wanted for webhook in webhooks)


async def gone(client: Client, kind: Kind, name: str) -> bool:
    return not await there(client, kind, name)


async def there(client: Client, kind: Kind, name: str) -> bool:
    try:
        await client.get(kind, name, namespace=NAMESPACE if kind.namespaced else None)
    except errors.NotFound:
        return False
    return True
