"""S10: the fields of the DASOperator take effect, and its conditions report the actual status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from apportion.apis import kinds
from apportion.apis.installation import Installation
from apportion.apis.kinds import Kind
from apportion.apis.meta import Condition
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.operator import conditions
from apportion.operator.main import Operator, Settings
from apportion.operator.workloads import Health, ManagedWorkload, managed_workloads
from tests.admission.api_server import ACCESS, account, api
from tests.environments.waiting import eventually

NAMESPACE = "das-operator"
WEBHOOK, SCHEDULER, AGENTS = WORKLOADS = managed_workloads(Installation())
SETTINGS = Settings(probes="127.0.0.1:0", emulated_mode="enabled")
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
INSTALLED = (*ACCESS, *WEBHOOKS, "CustomResourceDefinition", "NetworkPolicy", "Deployment", "DaemonSet")


def pods(plane: ManagedWorkload, *, desired: int, updated: int, available: int) -> Health:
    return Health(plane, present=True, settled=True, desired=desired, updated=updated, available=available)


def well(plane: ManagedWorkload, *, desired: int = 2) -> Health:
    return pods(plane, desired=desired, updated=desired, available=desired)


def verdicts(*planes: Health) -> dict[str, tuple[str, str]]:
    found = {entry.type: (entry.status, entry.reason) for entry in conditions.assess(planes)}
    assert list(found) == ["Available", "Progressing", "Degraded"]
    return found


def test_s10_all_well() -> None:
    assert [status for status, _ in verdicts(*map(well, WORKLOADS)).values()] == ["True", "False", "False"]


def test_s10_a_plane_without_pods_is_not_available_and_says_what_that_means() -> None:
    down = pods(WEBHOOK, desired=2, updated=2, available=0)
    found = verdicts(down, well(SCHEDULER), well(AGENTS))
    assert found["Available"] == ("False", "ComponentsNotAvailable")
    assert found["Degraded"] == ("True", "ComponentsIncomplete")
    message = conditions.assess([down, well(SCHEDULER), well(AGENTS)])[0].message
    assert message == "das-operator-webhook has no available pod: pods that request GPUs cannot be created"


def test_s10_one_pod_short_is_degraded_but_available() -> None:
    found = verdicts(pods(WEBHOOK, desired=2, updated=2, available=1), well(SCHEDULER), well(AGENTS))
    assert (found["Available"][0], found["Degraded"][0]) == ("True", "True")


def test_s10_a_rollout_is_progressing_and_not_degraded() -> None:
    found = verdicts(pods(WEBHOOK, desired=2, updated=1, available=1), well(SCHEDULER), well(AGENTS))
    assert (found["Available"][0], found["Progressing"][0], found["Degraded"][0]) == ("True", "True", "False")


def test_s10_a_missing_plane_is_degraded() -> None:
    assert verdicts(well(WEBHOOK), Health(SCHEDULER), well(AGENTS))["Degraded"] == ("True", "ComponentsIncomplete")


def test_s10_a_plane_that_somebody_scaled_to_nothing_is_degraded() -> None:
    found = verdicts(well(WEBHOOK, desired=0), well(SCHEDULER), well(AGENTS))
    assert (found["Available"][0], found["Degraded"][0]) == ("False", "True")


def test_s10_no_node_to_work_on_is_said_as_such() -> None:
    assert verdicts(well(WEBHOOK), well(SCHEDULER), well(AGENTS, desired=0))["Available"] == ("False", "NoNodes")
    assert verdicts(well(WEBHOOK), well(SCHEDULER), well(AGENTS, desired=0))["Degraded"][0] == "False"


def test_s10_times_move_only_with_the_status_and_foreign_conditions_stay() -> None:
    known = [
        Condition(type="Available", status="True", reason="a", last_transition_time="then"),
        Condition(type="Theirs", status="True"),
        Condition(type="Degraded", status="True", reason="b", last_transition_time="then"),
    ]
    merged = conditions.merge(known, conditions.assess(list(map(well, WORKLOADS))), now="now", generation=3)
    times = {entry.type: entry.last_transition_time for entry in merged}
    assert times == {"Theirs": "", "Available": "then", "Progressing": "now", "Degraded": "now"}


@asynccontextmanager
async def operating(settings: Settings = SETTINGS) -> AsyncIterator[Client]:
    async with api(INSTALLED) as client:
        task = asyncio.create_task(Operator(account(client, "das-operator"), settings).run())
        try:
            await eventually(lambda: current(client))
            yield client
        finally:
            task.cancel()
            await asyncio.wait([task], timeout=10)


async def test_s10_the_object_is_made_and_reports_what_is_missing() -> None:
    async with operating() as client:
        assert (await spec(client))["emulatedMode"] == "enabled"
        await eventually(lambda: status(client, "Available", "False"))
        await set_status(client, WEBHOOK, 2)
        await set_status(client, SCHEDULER, 1)
        await set_status(client, AGENTS, 2)
        await eventually(lambda: status(client, "Available", "True"))
        await eventually(lambda: status(client, "Degraded", "False"))
        await client.delete(kinds.DEPLOYMENTS, SCHEDULER.name, namespace=NAMESPACE)
        degraded = await eventually(lambda: status(client, "Degraded", "True"))
        assert degraded["message"] == "Deployment das-scheduler is missing"


async def test_s10_the_shipped_manifests_need_no_rollout() -> None:
    async with operating() as client:
        await eventually(lambda: status(client, "Available", "False"))
        generations = {plane.name: (await workload(client, plane))["metadata"]["generation"] for plane in WORKLOADS}
        assert generations == {plane.name: 1 for plane in WORKLOADS}


async def test_s10_switches_act_and_can_be_taken_back() -> None:
    async with operating() as client:
        await change(client, {"emulatedMode": "disabled", "logLevel": "Debug", "nodeSelector": {"pool": "gpu"}})
        await eventually(lambda: told(client, AGENTS, "APPORTION_DRIVER", "nvml"))
        await eventually(lambda: told(client, WEBHOOK, "APPORTION_RUNTIME_CLASS", "nvidia"))
        await eventually(lambda: told(client, SCHEDULER, "APPORTION_LOG_LEVEL", "Debug"))
        pod = await pod_of(client, AGENTS)
        assert pod["nodeSelector"] == {"pool": "gpu"}
        assert any(entry["name"] == "NODE_NAME" for entry in pod["containers"][0]["env"])

        await change(client, {"emulatedMode": "enabled", "logLevel": "Normal", "nodeSelector": {"pool": None}})
        await eventually(lambda: told(client, AGENTS, "APPORTION_DRIVER", "emulated"))
        await eventually(lambda: told(client, WEBHOOK, "APPORTION_RUNTIME_CLASS", None))
        assert not (await pod_of(client, AGENTS)).get("nodeSelector")


async def test_s10_unmanaged_changes_nothing_but_status_is_still_reported() -> None:
    async with operating() as client:
        await change(client, {"managementState": "Unmanaged", "emulatedMode": "disabled"})
        await set_status(client, WEBHOOK, 2)
        await set_status(client, SCHEDULER, 1)
        await set_status(client, AGENTS, 2)
        await eventually(lambda: status(client, "Available", "True"))
        assert await told(client, AGENTS, "APPORTION_DRIVER", "emulated")


async def test_s10_two_operators_do_not_revert_each_other() -> None:
    async with operating() as client:
        second = replace(SETTINGS, identity="second")
        other = asyncio.create_task(Operator(account(client, "das-operator"), second).run())
        try:
            await change(client, {"logLevel": "Debug"})
            await eventually(lambda: told(client, SCHEDULER, "APPORTION_LOG_LEVEL", "Debug"))
            await eventually(lambda: settled(client))
            before = (await current(client) or {})["metadata"]["resourceVersion"]
            await asyncio.sleep(0.5)  # nothing to wait for: nothing must happen
            assert (await current(client) or {})["metadata"]["resourceVersion"] == before
        finally:
            other.cancel()
            await asyncio.wait([other], timeout=10)


async def test_s10_the_other_replica_takes_over_when_the_leader_ends() -> None:
    async with api(INSTALLED) as client:
        replicas = [
            asyncio.create_task(Operator(account(client, "das-operator"), replace(SETTINGS, identity=name)).run())
            for name in ("first", "second")
        ]
        try:
            await eventually(lambda: status(client, "Available", "False"))
            leader = (await client.get(kinds.LEASES, "das-operator", namespace=NAMESPACE))["spec"]["holderIdentity"]
            ended = replicas[("first", "second").index(leader)]
            ended.cancel()
            await asyncio.wait([ended], timeout=10)
            await change(client, {"logLevel": "Debug"})
            await eventually(lambda: told(client, SCHEDULER, "APPORTION_LOG_LEVEL", "Debug"))
        finally:
            for task in replicas:
                task.cancel()
            await asyncio.wait(replicas, timeout=10)


async def test_s10_ready_replicas_are_those_of_the_operator() -> None:
    async with operating() as client:
        await set_status(client, WEBHOOK, 2)
        own = {"status": {"replicas": 2, "readyReplicas": 2}}
        await client.patch(kinds.DEPLOYMENTS, "das-operator", own, namespace=NAMESPACE, subresource="status")

        async def reported() -> bool:
            return bool((await current(client) or {}).get("status", {}).get("readyReplicas") == 2)

        await eventually(reported)


async def test_t06_a_deleted_network_policy_is_created_again() -> None:
    async with operating() as client:
        before = {each["metadata"]["name"]: each["spec"] for each in await network_policies(client)}
        assert len(before) == 4
        for name in before:
            await client.delete(kinds.NETWORK_POLICIES, name, namespace=NAMESPACE)

        async def back() -> bool:
            return {each["metadata"]["name"]: each["spec"] for each in await network_policies(client)} == before

        await eventually(back)


async def network_policies(client: Client) -> list[dict[str, Any]]:
    return (await client.list(kinds.NETWORK_POLICIES, namespace=NAMESPACE)).items


@pytest.mark.parametrize("selector", [{"a b": "x"}, {"a": "x y"}, {"a/b/c": "x"}, {"": "x"}, {"a": "x" * 64}])
async def test_s10_a_selector_that_no_label_can_match_is_refused(selector: dict[str, str]) -> None:
    async with operating() as client:
        with pytest.raises(errors.Invalid):
            await change(client, {"nodeSelector": selector})
        await change(client, {"nodeSelector": {"example.com/pool_1": "", "zone": "a-1"}})


@pytest.mark.parametrize("spelling", ["on", "true", ""])
async def test_s10_a_misspelt_switch_is_refused_by_the_schema(spelling: str) -> None:
    async with operating() as client:
        with pytest.raises(errors.Invalid):
            await change(client, {"emulatedMode": spelling})


async def current(client: Client) -> dict[str, Any] | None:
    try:
        return await client.get(kinds.DAS_OPERATORS, "cluster", namespace=NAMESPACE)
    except errors.NotFound:
        return None


async def spec(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = (await current(client) or {})["spec"]
    return found


async def status(client: Client, kind: str, wanted: str) -> dict[str, Any] | None:
    entries = (await current(client) or {}).get("status", {}).get("conditions", [])
    return next((entry for entry in entries if entry["type"] == kind and entry["status"] == wanted), None)


async def settled(client: Client) -> bool:
    body = await current(client) or {}
    return bool(body.get("status", {}).get("observedGeneration") == body["metadata"]["generation"])


async def change(client: Client, fields: dict[str, Any]) -> None:
    await client.patch(kinds.DAS_OPERATORS, "cluster", {"spec": fields}, namespace=NAMESPACE)


async def workload(client: Client, plane: ManagedWorkload) -> dict[str, Any]:
    return await client.get(plane.kind, plane.name, namespace=NAMESPACE)


async def pod_of(client: Client, plane: ManagedWorkload) -> dict[str, Any]:
    found: dict[str, Any] = (await workload(client, plane))["spec"]["template"]["spec"]
    return found


async def told(client: Client, plane: ManagedWorkload, name: str, value: str | None) -> bool:
    env = (await pod_of(client, plane))["containers"][0]["env"]
    return {entry["name"]: entry.get("value") for entry in env}.get(name) == value


async def set_status(client: Client, plane: ManagedWorkload, pods: int) -> None:
    """As a controller reports that all pods are well."""
    generation = (await workload(client, plane))["metadata"]["generation"]
    fields: dict[Kind, list[str]] = {
        kinds.DEPLOYMENTS: ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"],
        kinds.DAEMON_SETS: [
            "currentNumberScheduled",
            "desiredNumberScheduled",
            "updatedNumberScheduled",
            "numberReady",
            "numberAvailable",
        ],
    }
    body = dict.fromkeys(fields[plane.kind], pods) | {"observedGeneration": generation}
    if plane.kind is kinds.DAEMON_SETS:
        body["numberMisscheduled"] = 0
    await client.patch(plane.kind, plane.name, {"status": body}, namespace=NAMESPACE, subresource="status")
