"""The known limits of pocketkube's README, each held by a test: whoever lifts one finds it here."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.apis import kinds
from apportion.cluster import errors
from apportion.cluster.client import PatchType
from pocketkube.api.registry import Registry
from pocketkube.node_pools import Pool
from tests.pocketkube.cluster import RunningCluster, embedded, pod
from tests.pocketkube.match_conditions import configuration

TEXT = (Path(__file__).parents[2] / "src/pocketkube/README.md").read_text()
LIMITS = [line for line in TEXT.partition("## Known limits")[2].splitlines() if line.startswith(tuple("123456789"))]


def test_the_known_limits_are_few_and_all_of_them_are_held_here() -> None:
    assert [line.partition(".")[0] for line in LIMITS] == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("what", ["exec", "attach", "portforward", "proxy"])
async def test_1_exec_attach_portforward_and_proxy_are_refused(cluster: RunningCluster, what: str) -> None:
    await cluster.create(kinds.PODS, pod("p", "sleep", "1000"))
    with pytest.raises(errors.ApiError, match=f"this cluster simulates containers: {what} is not possible") as refusal:
        await cluster.client.raw("GET", f"/api/v1/namespaces/default/pods/p/{what}")
    assert refusal.value.code == 405


async def test_2_ephemeral_containers_are_kept_but_do_not_run(cluster: RunningCluster) -> None:
    await cluster.create(kinds.PODS, pod("p", "sleep", "1000"))
    await cluster.until_phase("p", "Running")
    added = {"spec": {"ephemeralContainers": [{"name": "debugger", "image": "busybox"}]}}
    changed = await cluster.client.patch(
        kinds.PODS, "p", added, namespace="default", how=PatchType.strategic, subresource="ephemeralcontainers"
    )
    assert changed["spec"]["ephemeralContainers"][0]["name"] == "debugger"
    observed = changed["metadata"]["generation"]
    await cluster.until(kinds.PODS, "p", lambda found: found["status"].get("observedGeneration", 0) >= observed)
    assert "ephemeralContainerStatuses" not in (await cluster.get(kinds.PODS, "p"))["status"]


async def test_3_the_default_scheduler_preempts_no_pod(tmp_path: Path) -> None:
    async with embedded(tmp_path, pools=[Pool(name="small", nodes=1, cpu="2", light=True)]) as cluster:
        await cluster.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
        whole = {"resources": {"requests": {"cpu": "1500m"}}}
        await cluster.create(kinds.PODS, pod("low", container=whole))
        await cluster.until_phase("low", "Running")
        await cluster.create(kinds.PODS, pod("urgent", container=whole, priorityClassName="high"))
        waits = await cluster.until(kinds.PODS, "urgent", lambda found: bool(found["status"].get("conditions")))
        assert waits["status"]["conditions"][0]["reason"] == "Unschedulable"
        assert "deletionTimestamp" not in (await cluster.get(kinds.PODS, "low"))["metadata"]


async def test_4_expressions_that_construct_messages_are_refused(cluster: RunningCluster) -> None:
    with pytest.raises(errors.Invalid, match="compilation failed"):
        await cluster.create(
            kinds.VALIDATING_WEBHOOKS, configuration("google.protobuf.Int64Value{value: 1} == object.spec.x")
        )


def test_5_kinds_without_an_effect_are_not_served() -> None:
    served = {resource.kind for resource in Registry.builtin()}
    missing = {"APIService", "FlowSchema"}
    assert served.isdisjoint(missing | {"PriorityLevelConfiguration", "IPAddress", "ServiceCIDR"})
