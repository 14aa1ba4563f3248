"""GPU memory of pods: who uses it, the report of pods above their share, and what `top` reads (G06, R03, X05)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apportion.apis import kinds, names
from apportion.apis.identities import DeviceUUID, PodUID
from apportion.apis.shared_gpus import SharedGpu, encode_shared_gpus
from apportion.emulation.gpus.inventory import device_uuid
from apportion.node import annotation_problems, memory_use
from apportion.node.container.cgroups import pod_of_process
from apportion.node.hardware.partitioner import GpuUser, Process
from tests.node.agent_node import NODE, AgentNode, agent_node

Json = dict[str, Any]
GPU, OTHER = (DeviceUUID(device_uuid(NODE, index)) for index in range(2))
A, B = PodUID("2f1c6f0e-0000-4000-8000-00000000000a"), PodUID("2f1c6f0e-0000-4000-8000-00000000000b")


def user(uid: PodUID, **shares: int | None) -> GpuUser:
    return GpuUser(uid, "default", uid[-1], {DeviceUUID(name): mib for name, mib in shares.items()}, {})


def nobody(pid: int) -> PodUID | None:
    return None


def used(
    users: list[GpuUser], processes: list[Process], pod_of: Any = nobody
) -> list[tuple[str, str, int | None, bool]]:
    return [
        (use.pod.name, use.device, use.used_mib, use.exceeds) for use in memory_use.of_pods(users, processes, pod_of)
    ]


def test_g06_processes_count_for_the_pod_of_their_process_id() -> None:
    users = [user(A, g=1000), user(B, g=2000)]
    processes = [Process(1, DeviceUUID("g"), 700), Process(2, DeviceUUID("g"), 400), Process(3, DeviceUUID("g"), 1500)]
    assert used(users, processes, {1: A, 2: A, 3: B}.get) == [("a", "g", 1100, True), ("b", "g", 1500, False)]


def test_g06_a_process_that_nobody_knows_counts_for_the_only_user_of_a_device() -> None:
    processes = [Process(1, DeviceUUID("g"), 5), Process(2, DeviceUUID("h"), 7), Process(3, DeviceUUID("x"), 9)]
    users = [user(A, g=None, h=6), user(B, g=1)]
    assert used(users, processes) == [("a", "g", 0, False), ("a", "h", 7, True), ("b", "g", 0, False)]


def test_g06_a_pod_exceeds_its_share_only_above_it_and_never_a_device_of_its_own() -> None:
    processes = [Process(0, DeviceUUID("g"), 6, A), Process(0, DeviceUUID("h"), 999, A)]
    assert used([user(A, g=6, h=None)], processes) == [("a", "g", 6, False), ("a", "h", 999, False)]


def test_g06_memory_that_the_driver_does_not_report_is_unknown_and_not_nothing() -> None:
    users = [user(A, g=6, h=6), user(B, g=6, h=6)]
    processes = [Process(1, DeviceUUID("g"), 7), Process(2, DeviceUUID("g"), None), Process(0, DeviceUUID("h"), None)]
    assert used(users, processes, {1: A, 2: B}.get) == [
        ("a", "g", 7, True),
        ("a", "h", None, False),
        ("b", "g", None, False),
        ("b", "h", None, False),
    ]


@pytest.mark.parametrize(
    ("line", "pod"),
    [
        (f"0::/kubepods.slice/kubepods-pod{A.replace('-', '_')}.slice/cri-containerd-1.scope", A),
        (f"4:memory:/kubepods/besteffort/pod{B}/1", B),
        ("0::/user.slice", None),
    ],
)
def test_g06_the_cgroup_of_a_process_names_its_pod(tmp_path: Path, line: str, pod: PodUID | None) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"{line}\n")
    assert pod_of_process(7, tmp_path) == pod
    assert pod_of_process(8, tmp_path) is None


@pytest.fixture
async def node() -> AsyncIterator[AgentNode]:
    declared = json.dumps([{"product": "NVIDIA A100-PCIE-40GB", "count": 2, "mig": False}])
    async with agent_node(annotations={names.EMULATED_GPUS: declared}) as place:
        await place.start_agent()
        yield place


async def shares(node: AgentNode, name: str, mib: int, allocates: str) -> Json:
    """A running pod with a share of the first GPU, as the binder leaves it."""
    pod = await node.pod(name)
    await node.bind(pod)
    annotations = {names.SHARED_GPUS: encode_shared_gpus([SharedGpu("group", GPU, mib)])}
    await allocate(node, name, allocates, **annotations)
    await node.report(pod, "Running")
    return pod


async def allocate(node: AgentNode, name: str, mib: str, **more: str) -> None:
    patch = {"metadata": {"annotations": {names.EMULATED_GPU_MEMORY: mib, **more}}}
    await node.client.patch(kinds.PODS, name, patch, namespace="default")


def sample(node: AgentNode, metric: str, pod: str = "", device: DeviceUUID = GPU) -> float | None:
    assert node.agent is not None
    labels = {"namespace": "default", "pod": pod, "device": device} if pod else {}
    found: float | None = node.agent.metrics.registry.get_sample_value(f"apportion_node_{metric}", labels)
    return found


async def warnings(node: AgentNode, reason: str = memory_use.EXCEEDED) -> list[tuple[str, str]]:
    return [
        (event["involvedObject"]["name"], event["message"])
        for event in await node.events()
        if event["reason"] == reason and event["type"] == "Warning"
    ]


async def reported(node: AgentNode) -> list[Json]:
    found: list[Json] = (await node.client.get(kinds.NODE_ACCELERATORS, NODE, namespace=names.DAS_NAMESPACE))[
        "status"
    ].get("memoryUse", [])
    return found


async def test_g06_a_pod_above_its_share_is_reported_once_for_each_time(node: AgentNode) -> None:
    await shares(node, "modest", 20000, "1500")
    await shares(node, "greedy", 2000, "2500")
    await node.eventually(lambda: sample(node, "pod_memory_used_mib", "greedy") == 2500, "the use is measured")
    await node.eventually(lambda: warnings(node), "it is reported")
    assert sample(node, "pod_memory_share_mib", "greedy") == 2000
    assert sample(node, "pod_memory_exceeded", "greedy") == 1
    assert sample(node, "pod_memory_exceeded", "modest") == 0
    assert sample(node, "memory_exceeded_total") == 1
    ((pod, message),) = await warnings(node)
    assert pod == "greedy"
    assert message.startswith(f"The pod uses 2500 MiB of GPU {GPU}, and its share is 2000 MiB")
    await allocate(node, "greedy", "2000")
    await node.eventually(lambda: sample(node, "pod_memory_exceeded", "greedy") == 0, "it is within its share")
    assert sample(node, "memory_exceeded_total") == 1
    await allocate(node, "greedy", "2001")
    await node.eventually(lambda: sample(node, "memory_exceeded_total") == 2, "it is reported again")


async def test_r03_metrics_of_a_pod_go_with_it(node: AgentNode) -> None:
    pod = await shares(node, "short", 2000, "100")
    await node.eventually(lambda: sample(node, "pod_memory_used_mib", "short") == 100, "the use is measured")
    await node.delete(pod)
    await node.eventually(lambda: sample(node, "pod_memory_used_mib", "short") is None, "the pod is gone")
    assert sample(node, "pod_memory_share_mib", "short") is None


async def test_r03_a_whole_gpu_has_the_memory_that_its_pod_uses(node: AgentNode) -> None:
    await node.eventually(lambda: node.kubelet.totals().get(names.NVIDIA_GPU) == (2, 2), "the kubelet has the GPUs")
    pod = await node.pod("whole", {names.NVIDIA_GPU: 1})
    await node.bind(pod)
    environment = await node.run(pod)
    device = DeviceUUID(environment[names.VISIBLE_DEVICES])
    await allocate(node, "whole", "999999999")
    await node.eventually(
        lambda: sample(node, "pod_memory_used_mib", "whole", device) == 40960, "it has all, and not more"
    )
    assert sample(node, "pod_memory_share_mib", "whole", device) is None
    assert await warnings(node) == []


async def test_x05_the_node_accelerator_lists_the_memory_that_each_pod_uses(node: AgentNode) -> None:
    modest = await shares(node, "modest", 20000, "1500")
    greedy = await shares(node, "greedy", 2000, "2500")
    idle = await shares(node, "idle", 100, "0")
    uids = [pod["metadata"]["uid"] for pod in (modest, greedy, idle)]
    entries = [
        {"podUID": uid, "uuid": GPU, "usedMiB": mib} for uid, mib in sorted(zip(uids, (1500, 2500, 0), strict=True))
    ]

    async def is_listed() -> bool:
        return await reported(node) == entries

    await node.eventually(is_listed, "the use is reported")
    for pod in (modest, greedy, idle):
        await node.delete(pod)

    async def is_empty() -> bool:
        return await reported(node) == []

    await node.eventually(is_empty, "it goes with the pods")
    assert node.forbidden == []


@pytest.mark.parametrize("value", ["lots", "-5", "1.5", "", "9" * 10, "1500\nMiB"])
async def test_r03_a_malformed_amount_of_emulated_memory_is_reported_once(
    node: AgentNode, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    await shares(node, "odd", 2000, value)
    await node.eventually(lambda: warnings(node, annotation_problems.INVALID), "it is reported")
    await node.eventually(lambda: sample(node, "pod_memory_used_mib", "odd") == 0, "it counts as nothing")
    await asyncio.sleep(3 * node.settings.sweep_seconds)
    ((pod, message),) = await warnings(node, annotation_problems.INVALID)
    assert pod == "odd"
    assert message.startswith(
        f"The annotation apportion.io/emulated-gpu-memory is {value!r}, which is not a whole number"
    )
    assert message.endswith('Write digits only, for example "1500".')
    lines = [record.getMessage() for record in caplog.records if "emulated-gpu-memory" in record.getMessage()]
    assert [line.startswith("pod default/odd: annotation ") and "\n" not in line for line in lines] == [True]


async def test_r03_a_malformed_amount_of_any_length_fits_into_its_event(node: AgentNode) -> None:
    await shares(node, "long", 2000, "x" * 100_000)
    ((_, message),) = await node.eventually(lambda: warnings(node, annotation_problems.INVALID), "it is reported")
    assert f"is '{'x' * 40}...', which" in message
    await allocate(node, "long", "1500")
    await node.eventually(lambda: sample(node, "pod_memory_used_mib", "long") == 1500, "it is a number now")
