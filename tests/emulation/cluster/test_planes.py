"""The planes on an embedded cluster: they run because their pods run."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apportion import manifests
from apportion.apis import kinds, names
from apportion.apis.installation import Installation
from apportion.emulation.cluster import installing, topology
from apportion.emulation.cluster.gpu_cluster import gpu_cluster, plugins
from pocketkube.cluster import EmbeddedCluster
from tests.pocketkube.cluster import QUICK, RunningCluster, pod, started

Json = dict[str, Any]
START_SECONDS = 90
SCHEDULER = "das-scheduler"


def gpus(folder: Path) -> EmbeddedCluster:
    return gpu_cluster(topology.default(), kubeconfig=folder / "kubeconfig", kubelet=QUICK)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with started(gpus(tmp_path)) as made:
        yield made


@pytest.fixture
async def planes(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with started(gpus(tmp_path)) as cluster:
        objects = manifests.load()
        await installing.apply(cluster.client, cluster.pocketkube.server.registry, objects)
        await installing.wait_ready(cluster.client, objects, seconds=START_SECONDS, progress=lambda _: None)
        cluster.namespace = "das-operator"
        yield cluster


def test_t01_the_shipped_and_the_configured_image_run_as_child_processes() -> None:
    configured = Installation(image="registry.local:5000/gpus/layer:1", namespace="gpus")
    listed = plugins(configured).process_images
    assert [image.image for image in listed] == [names.IMAGE, configured.image]
    assert all(image.namespaces == {"gpus", "kai-scheduler", "gpu-webhook", "gpu-operator"} for image in listed)


def processes(cluster: RunningCluster, plane: str) -> set[int]:
    """Child processes of this cluster that run a plane."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            if "'apportion'" in words[3] and words[4] == plane and parent == str(os.getpid()):
                found.add(int(entry.name))
    return found


async def pods_of(cluster: RunningCluster, name: str) -> list[Json]:
    found = await cluster.list(kinds.PODS)
    return [
        p for p in found if p["metadata"]["name"].startswith(f"{name}-") and "deletionTimestamp" not in p["metadata"]
    ]


def ready(found: list[Json]) -> bool:
    return bool(found) and all(
        any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", [])) for p in found
    )


async def test_r02_a_plane_runs_as_long_as_its_pod(planes: RunningCluster) -> None:
    cluster = planes
    (before,) = processes(cluster, "scheduler")
    (first,) = await pods_of(cluster, SCHEDULER)
    os.kill(before, signal.SIGKILL)
    back = await cluster.until(
        kinds.PODS,
        first["metadata"]["name"],
        lambda p: p["status"]["containerStatuses"][0]["restartCount"] == 1 and ready([p]),
        within=START_SECONDS,
    )
    assert back["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137
    (second,) = processes(cluster, "scheduler")
    assert second != before
    await cluster.until_log(first["metadata"]["name"], "\n")

    await cluster.delete(kinds.PODS, first["metadata"]["name"])
    await cluster.until_gone(kinds.PODS, first["metadata"]["name"])
    assert second not in processes(cluster, "scheduler")
    await cluster.until_true(lambda: pods_of(cluster, SCHEDULER), ready, within=START_SECONDS)

    await cluster.patch(kinds.DEPLOYMENTS, SCHEDULER, {"spec": {"replicas": 0}})
    await cluster.until_true(lambda: pods_of(cluster, SCHEDULER), lambda found: not found, within=START_SECONDS)
    await cluster.until_true(lambda: _count(cluster, "scheduler"), lambda count: count == 0)


async def _count(cluster: RunningCluster, plane: str) -> int:
    return len(processes(cluster, plane))


async def test_m05_the_node_shows_what_its_agent_offers(planes: RunningCluster) -> None:
    node = await planes.until(
        kinds.NODES, "node-1", lambda n: n["status"]["allocatable"].get("mig.das.com/1g.5gb") == "14"
    )
    assert int(node["status"]["capacity"]["gpu.das.com/mem"]) >= 80


async def test_a_stopped_cluster_leaves_no_plane(tmp_path: Path) -> None:
    async with started(gpus(tmp_path)) as cluster:
        objects = manifests.load()
        await installing.apply(cluster.client, cluster.pocketkube.server.registry, objects)
        await cluster.until_true(lambda: _count(cluster, "node"), lambda count: count == 1, within=START_SECONDS)
    assert not processes(cluster, "node")
    assert not processes(cluster, "webhook")


async def test_a_plane_that_does_not_start_is_named_with_its_last_log_lines(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "broken", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "registry.invalid/x:1"}]},
            },
        },
    }
    await installing.apply(cluster.client, cluster.pocketkube.server.registry, [body])
    with pytest.raises(installing.InstallError, match=r"not ready after 1 s: broken \(broken-.*registry.invalid"):
        await installing.wait_ready(cluster.client, [body], seconds=1, progress=lambda _: None)
    monkeypatch.setattr(installing, "_KIND_SECONDS", 0.2)
    unknown = {"apiVersion": "example.com/v1", "kind": "Nothing"}
    with pytest.raises(installing.InstallError, match=r"no kind example\.com/v1 Nothing"):
        await installing.apply(cluster.client, cluster.pocketkube.server.registry, [unknown])


async def test_a_gpu_sample_runs_and_nvidia_smi_is_there(cluster: RunningCluster) -> None:
    image = "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0-ubi8"
    await cluster.create(kinds.PODS, pod("sample", image=image, restartPolicy="Never"))
    await cluster.create(kinds.PODS, pod("smi", "nvidia-smi", "-L", restartPolicy="Never"))
    await cluster.until_phase("sample", "Succeeded")
    assert "Test PASSED" in await cluster.logs("sample")
    failed = await cluster.until_phase("smi", "Failed")
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 6
    assert await cluster.logs("smi") == "No devices were found\n"
