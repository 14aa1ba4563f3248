"""Containers with a share of a GPU on an embedded cluster: their variables, and what `nvidia-smi` shows (G06, F09)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apportion.apis import kinds, names
from apportion.apis.shared_gpus import CDI_GPU
from apportion.cluster import errors
from apportion.emulation.cluster import topology, visible_gpus
from apportion.emulation.cluster.gpu_cluster import gpu_cluster
from apportion.emulation.gpus.inventory import device_uuid
from apportion.emulation.nvidia_smi import script
from tests.pocketkube.cluster import QUICK, RunningCluster, pod, started

Json = dict[str, Any]
FIRST, SECOND = device_uuid("node-1", 0), device_uuid("node-1", 1)
GPUS = [{"product": "NVIDIA A100-PCIE-40GB", "count": 1}, {"product": "Tesla T4", "count": 1}]
CONFIG_MAP = "gpu-sharing-abc1234-shared-gpu-0"
SHARED = (names.VISIBLE_DEVICES, names.GPU_PORTION, names.NUMBER_OF_GPUS)
LISTED = "nvidia-smi --query-gpu=uuid,name,memory.total,memory.used --format=csv,noheader"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    """One node with GPUs and without an agent: nothing is mounted into its containers."""
    made = topology.parse({"pools": [{"name": "node", "gpus": GPUS}]})
    async with started(gpu_cluster(made, kubeconfig=tmp_path / "kubeconfig", kubelet=QUICK)) as running:
        yield running


def sharer(name: str, text: str, annotations: Json | None = None) -> Json:
    """As admission leaves it: the first container has the share, the other one has nothing."""
    env = [{"name": each, "valueFrom": {"configMapKeyRef": {"name": CONFIG_MAP, "key": each}}} for each in SHARED]
    command = ["sh", "-c", f"{text}; sleep infinity"]
    workload = {"name": "gpu-workload", "image": "ubuntu", "command": command, "env": env}
    void = [{"name": names.VISIBLE_DEVICES, "value": "void"}]
    looking = ["sh", "-c", "nvidia-smi; sleep infinity"]
    sidecar = {"name": "sidecar", "image": "busybox", "command": looking, "env": void}
    made = pod(name, containers=[workload, sidecar])
    made["metadata"]["annotations"] = annotations or {}
    return made


async def log_of(cluster: RunningCluster, container: str, text: str, of: str = "gpu-sharing") -> str:
    """The log of a container, once it has this text."""

    async def look() -> str:
        with contextlib.suppress(errors.BadRequest):  # it is not started yet
            return await cluster.logs(of, container)
        return ""

    found: str = await cluster.until_true(look, lambda log: text in log)
    return found


def devices(gpu: str, portion: str = "0.5") -> Json:
    data = {names.VISIBLE_DEVICES: gpu, names.GPU_PORTION: portion, names.NUMBER_OF_GPUS: portion}
    return {"metadata": {"name": CONFIG_MAP}, "immutable": True, "data": data}


async def test_g06_a_sharer_waits_for_its_config_map_and_has_its_variables(cluster: RunningCluster) -> None:
    await cluster.create(kinds.PODS, sharer("gpu-sharing", f"printenv {' '.join(SHARED)}"))

    def waits(found: Json) -> bool:
        states = {each["name"]: each["state"] for each in found["status"].get("containerStatuses") or []}
        return bool(states) and states["gpu-workload"].get("waiting") == {
            "reason": "CreateContainerConfigError",
            "message": f'configmap "{CONFIG_MAP}" not found',
        }

    await cluster.until(kinds.PODS, "gpu-sharing", waits)
    await cluster.create(kinds.CONFIG_MAPS, devices(FIRST))
    assert await log_of(cluster, "gpu-workload", "0.5\n0.5\n") == f"{FIRST}\n0.5\n0.5\n"


async def test_f09_nvidia_smi_of_a_sharer_shows_its_gpu_and_what_it_allocates(cluster: RunningCluster) -> None:
    await cluster.create(kinds.CONFIG_MAPS, devices(SECOND))
    allocates = {names.EMULATED_GPU_MEMORY: "1500"}
    await cluster.create(kinds.PODS, sharer("gpu-sharing", f"nvidia-smi -L; {LISTED}; nvidia-smi", allocates))
    log = await log_of(cluster, "gpu-workload", "1500MiB /  15360MiB")
    assert log.splitlines()[:2] == [f"GPU 0: Tesla T4 (UUID: {SECOND})", f"{SECOND}, Tesla T4, 15360 MiB, 1500 MiB"]
    assert await log_of(cluster, "sidecar", "\n") == "No devices were found\n"


async def test_f09_nvidia_smi_finds_no_gpu_that_the_node_does_not_have(cluster: RunningCluster) -> None:
    await cluster.create(kinds.CONFIG_MAPS, devices(device_uuid("other-node", 0)))
    await cluster.create(kinds.PODS, sharer("gpu-sharing", "nvidia-smi; echo $?"))
    assert await log_of(cluster, "gpu-workload", "6\n") == "No devices were found\n6\n"


EXAMPLES = Path(__file__).parents[3] / "examples/gpu-sharing"


@pytest.mark.parametrize(
    ("file", "name", "annotations"),
    [
        ("gpu-sharing.yaml", "gpu-sharing", {"gpu-fraction": "0.5"}),
        ("gpu-memory.yaml", "gpu-sharing", {"gpu-memory": "2000", names.EMULATED_GPU_MEMORY: "1500"}),
        (
            "gpu-sharing-non-default-container.yaml",
            "gpu-sharing-non-default",
            {"gpu-fraction": "0.5", "gpu-fraction-container-name": "gpu-workload"},
        ),
    ],
)
async def test_g08_the_log_of_each_example_shows_its_gpu(
    cluster: RunningCluster, file: str, name: str, annotations: Json
) -> None:
    """The manifest as it is, with what admission adds, on a cluster without our components."""
    made = yaml.safe_load((EXAMPLES / file).read_text())
    assert made["metadata"] == {
        "name": name,
        "labels": {names.QUEUE_LABEL: names.DEFAULT_QUEUE},
        "annotations": annotations,
    }
    assert made["spec"]["schedulerName"] == names.KAI_SCHEDULER
    workload = made["spec"]["containers"][-1]
    assert workload["name"] == "gpu-workload"
    workload["env"] = [{"name": names.VISIBLE_DEVICES, "value": SECOND}, {"name": names.GPU_PORTION, "value": "0.5"}]
    made["spec"]["nodeName"] = "node-1"
    await cluster.create(kinds.PODS, made)
    log = await log_of(cluster, "gpu-workload", f"{SECOND}\n0.5\n", name)
    assert f"{annotations.get(names.EMULATED_GPU_MEMORY, 0)}MiB /  15360MiB" in log


NODE: Json = topology.parse({"pools": [{"name": "node", "gpus": GPUS}]}).nodes()[0].annotations


def shown(named: str, annotations: Json | None = None, node: Json = NODE) -> list[str] | None:
    """The GPUs that a container with this variable sees; None: the runtime adds nothing."""
    found = visible_gpus.files(
        {"metadata": {"annotations": annotations or {}}},
        {"metadata": {"name": "node-1", "annotations": node}},
        {names.VISIBLE_DEVICES: named},
    )
    if not found:
        return None
    machine = script.read(found["/usr/bin/nvidia-smi"])
    assert machine is not None
    return [f"{board.index} {board.uuid} {board.used_mib}" for board in machine.boards]


@pytest.mark.parametrize(
    ("named", "gpus"),
    [
        (SECOND, [f"0 {SECOND} 0"]),
        (f"{CDI_GPU}{SECOND}", [f"0 {SECOND} 0"]),
        (f"{SECOND},{FIRST}", [f"0 {FIRST} 0", f"1 {SECOND} 0"]),
        ("1", [f"0 {SECOND} 0"]),
        ("all", [f"0 {FIRST} 0", f"1 {SECOND} 0"]),
        ("GPU-unknown", []),
        ("void", None),
        ("none", None),
        ("", None),
        ("MIG-1", None),
    ],
)
def test_f09_the_runtime_adds_what_the_variable_names(named: str, gpus: list[str] | None) -> None:
    assert shown(named) == gpus


@pytest.mark.parametrize(
    ("mib", "used"), [("1500", 1500), ("999999", 15360), ("", 0), ("-5", 0), ("1.5", 0), ("9" * 400, 0), ("\u0663", 0)]
)
def test_f09_used_memory_is_what_the_annotation_says_and_never_more_than_there_is(mib: str, used: int) -> None:
    assert shown(SECOND, {names.EMULATED_GPU_MEMORY: mib}) == [f"0 {SECOND} {used}"]


@pytest.mark.parametrize("declared", ["[", "[{}, 5]", '[{"product": "unknown"}]'])
def test_f09_a_node_with_a_broken_declaration_shows_no_gpus(declared: str) -> None:
    assert shown(FIRST, node={names.EMULATED_GPUS: declared}) == []
    assert shown(FIRST, node={}) is None
