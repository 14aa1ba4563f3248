"""The schedulers of base and sharing on an embedded cluster: one program, one Lease, two Deployments (R02, G08)."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apportion import manifests
from apportion.apis import kinds, names
from apportion.apis.kinds import Kind
from apportion.cli import top
from apportion.emulation.cluster import installing, topology
from apportion.emulation.cluster.gpu_cluster import gpu_cluster
from tests.cli.cli_runner import called
from tests.environments import audit
from tests.pocketkube.cluster import QUICK, RunningCluster, pod, started

Json = dict[str, Any]
START_SECONDS = 90
CONFIGS = Kind("kai.scheduler", "v1", "configs", "Config", namespaced=False)


@pytest.fixture
async def cluster(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[RunningCluster]:
    caplog.set_level(logging.INFO, "pocketkube.api.server")  # what it refuses to whom
    plan = topology.default(sharing=True)
    async with started(gpu_cluster(plan, kubeconfig=tmp_path / "kubeconfig", kubelet=QUICK)) as made:
        objects = [*manifests.load(), *manifests.load("default-queues"), *manifests.load("sharing")]
        await installing.apply(made.client, made.pocketkube.server.registry, objects)
        await installing.wait_ready(made.client, objects, seconds=START_SECONDS, progress=lambda _: None)
        yield made


async def test_g08_the_scheduler_of_kai_scheduler_logs_what_the_other_decides_and_takes_over(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    config = await cluster.client.get(CONFIGS, names.KAI_CONFIG_OBJECT)
    assert config["spec"]["admission"]["gpuSharing"] is True
    first = await holder(cluster)
    assert first.startswith(("das-scheduler-", "kai-scheduler-"))
    leads, waits = ("das-operator", "kai-scheduler") if first.startswith("das") else ("kai-scheduler", "das-operator")
    standby = await scheduler_pod(cluster, waits)
    cluster.namespace = waits
    await cluster.until_log(standby, "standing by: the GPU decisions", within=START_SECONDS)

    cluster.namespace = "default"
    await cluster.create(kinds.PODS, gpu_pod("a"))
    await cluster.until(kinds.PODS, "a", lambda found: bool(found["spec"].get("nodeName")), within=START_SECONDS)
    cluster.namespace = waits
    await cluster.until_log(standby, "pod default/a: Successfully assigned default/a", within=START_SECONDS)

    cluster.namespace = leads
    name = "das-scheduler" if leads == "das-operator" else "kai-scheduler"
    await cluster.patch(kinds.DEPLOYMENTS, name, {"spec": {"replicas": 0}})
    await cluster.until_true(lambda: holder(cluster), lambda found: found == standby, within=START_SECONDS)
    cluster.namespace = "default"
    await cluster.create(kinds.PODS, gpu_pod("b"))
    await cluster.until(kinds.PODS, "b", lambda found: bool(found["spec"].get("nodeName")), within=START_SECONDS)
    assert audit.refused_lines(caplog.text) == []


async def test_g05_r01_a_share_and_its_end_need_no_right_that_a_component_does_not_have(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    body = pod("half", "sh", "-c", "sleep 600", schedulerName=names.KAI_SCHEDULER)
    body["metadata"]["annotations"] = {names.GPU_FRACTION: "0.5"}
    await cluster.create(kinds.PODS, body)
    bound = await cluster.until(kinds.PODS, "half", lambda found: found["status"].get("phase") == "Running", within=60)
    assert bound["spec"]["nodeName"] == "whole-gpu-node-1"
    await cluster.delete(kinds.PODS, "half")
    cluster.namespace = names.RESERVATION_NAMESPACE
    await cluster.until_true(lambda: cluster.list(kinds.PODS), lambda found: not found, within=START_SECONDS)
    assert audit.refused_lines(caplog.text) == []


async def test_x05_top_shows_that_a_pod_uses_more_than_its_share(cluster: RunningCluster, tmp_path: Path) -> None:
    body = pod("greedy", "sh", "-c", "sleep 600", schedulerName=names.KAI_SCHEDULER)
    body["metadata"]["annotations"] = {names.GPU_SHARE_MEMORY: "2000", names.EMULATED_GPU_MEMORY: "2500"}
    await cluster.create(kinds.PODS, body)
    await cluster.until(kinds.PODS, "greedy", lambda found: found["status"].get("phase") == "Running", within=60)

    async def shares() -> list[Json]:
        code, out, err = await called(top.command, output="json", kubeconfig=tmp_path / "kubeconfig")
        assert code == 0, err
        gpus = [gpu for node in json.loads(out)["nodes"] for gpu in node["gpus"]]
        return [share for gpu in gpus for share in gpu["shares"]]

    (share,) = await cluster.until_true(shares, lambda found: found and found[0]["used_mib"], within=START_SECONDS)
    assert (share["owner"], share["mib"], share["used_mib"]) == ("default/greedy", 2000, 2500)
    _, out, _ = await called(top.command, once=True, kubeconfig=tmp_path / "kubeconfig")
    assert "1 default/greedy 2000 MiB, 2500 used, above its share" in out


async def holder(cluster: RunningCluster) -> str:
    lease = await cluster.client.get(kinds.LEASES, names.SCHEDULER_LEASE, namespace=names.DAS_NAMESPACE)
    return str(lease["spec"].get("holderIdentity") or "")


async def scheduler_pod(cluster: RunningCluster, namespace: str) -> str:
    listing = await cluster.client.list(kinds.PODS, namespace=namespace)
    (found,) = (each["metadata"]["name"] for each in listing.items if "scheduler-" in each["metadata"]["name"])
    return str(found)


def gpu_pod(name: str) -> Json:
    made = pod(name)
    made["spec"]["schedulerName"] = names.KAI_SCHEDULER
    made["spec"]["containers"][0]["resources"] = {"limits": {names.NVIDIA_GPU: "1"}}
    return made
