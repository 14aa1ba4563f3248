"""Log levels of all planes: Normal has a line for every placement, Debug and Trace show more in every plane. R03."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from apportion import manifests
from apportion.apis import kinds
from apportion.cluster import log_levels
from apportion.emulation.cluster import installing, topology
from apportion.emulation.cluster.gpu_cluster import gpu_cluster
from tests.pocketkube.cluster import QUICK, RunningCluster, started
from tests.scheduler.cluster import ApiCluster, scheduling, until
from tests.scheduler.conftest import cluster as _cluster

scheduler_cluster = _cluster
PLANES = ("das-operator-webhook", "das-scheduler", "das-operator-daemonset", "das-operator")
SETTINGS = {"emulatedMode": "enabled", "logLevel": "Trace", "operatorLogLevel": "Trace"}


def at_trace() -> list[dict[str, Any]]:
    """The manifests as the operator would make them, so that nothing has to be rolled out."""
    objects = manifests.load()
    for body in objects:
        if body["kind"] in {"Deployment", "DaemonSet"}:
            for entry in body["spec"]["template"]["spec"]["containers"][0]["env"]:
                if entry["name"] == "APPORTION_LOG_LEVEL":
                    entry["value"] = "Trace"
    settings = {"metadata": {"name": "cluster", "namespace": "das-operator"}, "spec": SETTINGS}
    kind = {"apiVersion": "inference.redhat.com/v1alpha1", "kind": "DASOperator"}
    position = next(number for number, body in enumerate(objects) if body["kind"] == "ServiceAccount")
    return [*objects[:position], kind | settings, *objects[position:]]


async def test_r03_debug_and_trace_show_something_in_every_plane(tmp_path: Path) -> None:
    made = gpu_cluster(topology.default(), kubeconfig=tmp_path / "kubeconfig", kubelet=QUICK)
    async with started(made) as running:
        objects = at_trace()
        await installing.apply(running.client, running.pocketkube.server.registry, objects)
        await installing.wait_ready(running.client, objects, seconds=90, progress=lambda _: None)
        limits = {"nvidia.com/mig-1g.5gb": "1"}
        container = {"name": "main", "image": "busybox:1.36", "command": ["sleep", "infinity"]}
        body = {"metadata": {"name": "a"}, "spec": {"containers": [container | {"resources": {"limits": limits}}]}}
        await running.client.create(kinds.PODS, body, namespace="default")
        for plane in PLANES:
            text = await until(lambda plane=plane: shown(running, plane))
            assert "Traceback" not in text
            if plane == "das-scheduler":
                assert "pod default/a placed on node" in await until(lambda: placed(running))
            if plane == "das-operator-webhook":
                assert "review on" in text


async def shown(running: RunningCluster, plane: str) -> str:
    """The log of the plane once it has lines of both levels."""
    text = await log_of(running, plane)
    wanted = " DEBUG " in text and " TRACE " in text and (plane != "das-operator-webhook" or "review on" in text)
    return text if wanted else ""


async def placed(running: RunningCluster) -> str:
    text = await log_of(running, "das-scheduler")
    return text if "placed on node" in text else ""


async def log_of(running: RunningCluster, plane: str) -> str:
    listing = await running.client.list(kinds.PODS, namespace="das-operator", labels=f"app.kubernetes.io/name={plane}")
    chunks = [
        chunk for pod in listing.items async for chunk in running.client.logs("das-operator", pod["metadata"]["name"])
    ]
    return b"".join(chunks).decode()


async def test_r03_a_placement_is_logged_at_the_normal_level(
    scheduler_cluster: ApiCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cluster = scheduler_cluster
    await cluster.node("n1", gpus=1)
    async with scheduling(cluster):
        await cluster.pod("a", slices={"3g.20gb": 1})
        await cluster.pod("waits", slices={"7g.40gb": 1})
        await cluster.bound("a")
        await cluster.waits("waits")
    lines = [record.getMessage() for record in caplog.records]
    (line,) = [line for line in lines if line.startswith("pod default/a placed on node n1: 3g.20gb at ")]
    assert cluster.gpus["n1"][0] in line
    assert "policy fragmentation" in line
    assert any(line.startswith("pod default/waits is pending: ") for line in lines)


@pytest.mark.parametrize(("name", "level"), [("Normal", 20), ("debug", 10), ("Trace", 5), ("TraceAll", 1)])
def test_r03_levels_have_the_names_of_the_dasoperator(name: str, level: int) -> None:
    assert log_levels.parse(name) == level
    assert log_levels.parse("loud") is None
