"""Reservation pods on an embedded cluster: the effect of `apportion reserve` without its process (G05, T01)."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apportion import manifests
from apportion.apis import kinds, names
from apportion.apis.installation import Installation
from apportion.apis.kubelet import deviceplugin_pb2 as pb
from apportion.emulation.cluster import installing, topology
from apportion.emulation.cluster.gpu_cluster import gpu_cluster
from apportion.emulation.gpus.inventory import device_uuid
from tests.pocketkube.cluster import QUICK, RunningCluster, pod, started
from tests.pocketkube.kubelet.toyplugin import ToyPlugin
from tests.reserve.reserving import ACCOUNT, ROLE_BINDINGS, ROLES

Json = dict[str, Any]
NAMESPACE = Installation.reservation_namespace
MANY = 500


class GpuPlugin(ToyPlugin):
    """A foreign device plugin: it names its GPUs in the environment."""

    async def Allocate(self, request: pb.AllocateRequest, context: Any) -> pb.AllocateResponse:  # noqa: N802
        ids = request.container_requests[0].devices_ids
        answer = pb.ContainerAllocateResponse(envs={names.VISIBLE_DEVICES: ",".join(ids)})
        return pb.AllocateResponse(container_responses=[answer])


def of_pools(folder: Path, *pools: Json) -> Any:
    return started(gpu_cluster(topology.parse({"pools": list(pools)}), kubeconfig=folder / "kubeconfig", kubelet=QUICK))


LIGHT: Json = {"name": "light", "light": True, "gpus": [{"product": "Tesla T4", "count": 2}]}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    """One ordinary node without an agent."""
    async with of_pools(tmp_path, {"name": "node", "gpus": [{"product": "Tesla T4", "count": 2}]}) as cluster:
        await prepare(cluster)
        yield cluster


@pytest.fixture
async def light(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with of_pools(tmp_path, LIGHT) as cluster:
        await prepare(cluster)
        yield cluster


async def prepare(cluster: RunningCluster, *, rights: bool = True) -> None:
    await cluster.create(kinds.NAMESPACES, {"metadata": {"name": NAMESPACE}})
    cluster.namespace = NAMESPACE
    await cluster.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": ACCOUNT}})
    if rights:
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}
        await cluster.create(ROLES, {"metadata": {"name": ACCOUNT}, "rules": [rule]})
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT}
        body = {"metadata": {"name": ACCOUNT}, "roleRef": role, "subjects": [subject]}
        await cluster.create(ROLE_BINDINGS, body)


def reservation(name: str, node: str, **container: Any) -> Json:
    """As the binder makes it, without what does not matter here."""
    fields = ("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace")
    ours: Json = {
        "command": ["apportion"],
        "args": ["reserve"],
        "resources": {"limits": {names.NVIDIA_GPU: "1"}},
        "env": [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields],
    }
    return pod(name, image=names.IMAGE, container=ours | container, nodeName=node, serviceAccountName=ACCOUNT)


def gpu_of(found: Json) -> str | None:
    return (found["metadata"].get("annotations") or {}).get(names.RESERVED_GPU)


async def reserved(cluster: RunningCluster, name: str) -> str:
    found = await cluster.until(kinds.PODS, name, lambda each: gpu_of(each) is not None)
    return str(gpu_of(found))


async def test_g05_a_reservation_pod_tells_the_gpu_that_the_kubelet_gave_it(node: RunningCluster) -> None:
    folder = node.pocketkube.kubelets["node-1"].root / "var/lib/kubelet/device-plugins"
    plugin = GpuPlugin(folder, names.NVIDIA_GPU, ["GPU-a", "GPU-b"], pre_start=False)
    await plugin.start()
    await node.until(kinds.NODES, "node-1", lambda n: n["status"]["allocatable"].get(names.NVIDIA_GPU) == "2")
    for name in ("r1", "r2"):
        await node.create(kinds.PODS, reservation(name, "node-1"))
    assert {await reserved(node, "r1"), await reserved(node, "r2")} == {"GPU-a", "GPU-b"}
    gpu = await reserved(node, "r1")
    log = await node.until_log("r1", "reserved")
    assert log.endswith(f" INFO reserve reserved GPU {gpu} for pods that share it\n")
    assert (await node.get(kinds.PODS, "r1"))["status"]["phase"] == "Running"
    await node.delete(kinds.PODS, "r1")
    await node.until_gone(kinds.PODS, "r1")
    await node.create(kinds.PODS, reservation("r3", "node-1"))
    assert await reserved(node, "r3") == gpu
    await plugin.stop()


async def test_g05_with_our_agent_the_gpu_is_one_of_its_report(tmp_path: Path) -> None:
    """Whole GPUs of our agent come through its CDI file; a pod that holds one sees what it allocates."""
    pool: Json = {"name": "node", "gpus": [{"product": "NVIDIA A100-PCIE-40GB", "count": 2, "mig": False}]}
    async with of_pools(tmp_path, pool) as cluster:
        objects = manifests.load()
        await installing.apply(cluster.client, cluster.pocketkube.server.registry, objects)
        await installing.wait_ready(cluster.client, objects, seconds=90, progress=lambda _: None)
        await prepare(cluster)
        both = {device_uuid("node-1", index) for index in range(2)}
        await cluster.until(kinds.NODES, "node-1", lambda n: n["status"]["allocatable"].get(names.NVIDIA_GPU) == "2")
        await cluster.create(kinds.PODS, reservation("r1", "node-1"))
        gpu = await reserved(cluster, "r1")
        assert gpu in both
        looking = {"command": ["sh", "-c", "nvidia-smi -L; nvidia-smi; sleep infinity"]}
        limits = {"resources": {"limits": {names.NVIDIA_GPU: "1"}}}
        whole = pod("whole", image="ubuntu", container=looking | limits, nodeName="node-1")
        whole["metadata"]["annotations"] = {names.EMULATED_GPU_MEMORY: "30000"}
        await cluster.create(kinds.PODS, whole)
        await cluster.until_phase("whole", "Running")
        (other,) = both - {gpu}
        log = await cluster.until_log("whole", "30000MiB /  40960MiB")
        assert log.startswith(f"GPU 0: NVIDIA A100-PCIE-40GB (UUID: {other})\n")


async def test_t01_no_process_is_started_for_a_reservation_pod(node: RunningCluster) -> None:
    before = children()
    await node.create(kinds.PODS, reservation("r1", "node-1", resources={}))
    log = await node.until_log("r1", "ERROR")
    assert "this container has no GPU: its pod must request nvidia.com/gpu: 1" in log
    assert children() <= before
    assert gpu_of(await node.get(kinds.PODS, "r1")) is None


def children() -> set[str]:
    """The child processes of this one; other tests may have left some that end now."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


async def test_g05_gpus_of_light_nodes_are_given_in_order_and_again(light: RunningCluster) -> None:
    first, second = device_uuid("light-1", 0), device_uuid("light-1", 1)
    await light.create(kinds.PODS, reservation("r1", "light-1"))
    assert await reserved(light, "r1") == first
    await light.create(kinds.PODS, reservation("r2", "light-1"))
    assert await reserved(light, "r2") == second
    await light.create(kinds.PODS, reservation("r3", "light-1"))
    await light.until_phase("r3", "Running")
    assert gpu_of(await light.get(kinds.PODS, "r3")) is None  # until one is free
    await light.delete(kinds.PODS, "r1")
    assert await reserved(light, "r3") == first


async def test_t01_only_reservation_pods_have_that_effect(light: RunningCluster) -> None:
    await light.create(kinds.NAMESPACES, {"metadata": {"name": "tenant"}})
    light.namespace = "tenant"
    await light.until(kinds.SERVICE_ACCOUNTS, "default", lambda _: True)
    stranger = reservation("r1", "light-1")
    stranger["spec"]["serviceAccountName"] = "default"
    await light.create(kinds.PODS, stranger)
    await light.until_phase("r1", "Running")
    light.namespace = NAMESPACE
    await light.create(kinds.PODS, reservation("other-image", "light-1", image="ghcr.io/else/apportion:0.1.0"))
    await light.create(kinds.PODS, reservation("other-command", "light-1", args=["reserve", "--all"]))
    await light.create(kinds.PODS, reservation("real", "light-1"))
    assert await reserved(light, "real") == device_uuid("light-1", 0)
    everything = await light.client.list(kinds.PODS)
    assert [each["metadata"]["name"] for each in everything.items if gpu_of(each)] == ["real"]


async def test_t04_the_annotation_is_written_with_the_rights_of_the_pod(tmp_path: Path) -> None:
    async with of_pools(tmp_path, {"name": "node"}) as cluster:
        await prepare(cluster, rights=False)
        made = reservation("r1", "node-1", resources={})
        made["spec"]["containers"][0]["env"].append({"name": names.VISIBLE_DEVICES, "value": "GPU-1"})
        await cluster.create(kinds.PODS, made)
        log = await cluster.until_log("r1", "ERROR")
        assert f'User "system:serviceaccount:{NAMESPACE}:{ACCOUNT}" cannot patch resource "pods"' in log
        assert gpu_of(await cluster.get(kinds.PODS, "r1")) is None


async def test_g05_five_hundred_reservations_cost_little(tmp_path: Path) -> None:
    nodes = 125
    pool = LIGHT | {"nodes": nodes, "gpus": [{"product": "Tesla T4", "count": MANY // nodes}]}
    async with of_pools(tmp_path, pool) as cluster:
        await prepare(cluster)
        before = children()
        began, cpu = time.monotonic(), time.process_time()
        await asyncio.gather(
            *(cluster.create(kinds.PODS, reservation(f"r{i}", f"light-{i % nodes + 1}")) for i in range(MANY))
        )

        async def gpus() -> list[str]:
            return [gpu for each in await cluster.list(kinds.PODS) if (gpu := gpu_of(each))]

        found = await cluster.until_true(gpus, lambda all_of_them: len(all_of_them) == MANY)
        print(json.dumps({"seconds": round(time.monotonic() - began, 1), "cpu": round(time.process_time() - cpu, 1)}))
        assert len(set(found)) == MANY
        assert children() <= before
