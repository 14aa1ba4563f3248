"""The NodeAccelerator: its form for clients of the DAS operator (S09), and how often it is written (X05)."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

from apportion.apis import kinds, names
from apportion.apis.identities import DeviceUUID, PodUID
from apportion.cluster.client import Client
from apportion.node import readiness
from apportion.node.cluster.accelerator_report import AcceleratorReport
from apportion.node.cluster.accelerator_status import NodeReport
from apportion.node.hardware.partitioner import GpuUser
from apportion.node.memory_use import Use
from tests.node.agent_node import GPUS, NODE, AgentNode, agent_node

JSON = dict[str, Any]


async def inventory(node: AgentNode) -> JSON:
    found = await node.client.get(kinds.NODE_ACCELERATORS, NODE, namespace=names.DAS_NAMESPACE)
    resources: JSON = found["status"]["nodeResources"]
    return resources


async def test_s09_the_inventory_has_the_form_of_the_original(node: AgentNode) -> None:
    found = await inventory(node)
    assert found["nodeGpus"] == [
        {"gpuUuid": uuid, "gpuName": "NVIDIA A100-PCIE-40GB", "gpuMemory": "40Gi"} for uuid in GPUS[:2]
    ]
    placement = found["migPlacement"]
    assert placement["1g.5gb"]["placements"] == [{"size": 1, "start": start} for start in range(7)]
    assert placement["3g.20gb"] == {
        "placements": [{"size": 4, "start": 0}, {"size": 4, "start": 4}],
        "giProfileId": 2,
        "ciProfileId": 2,
    }
    # NVML's enums: the media engines have one of their own for GPU instances, and none for compute instances
    assert (placement["1g.5gb+me"]["giProfileId"], placement["1g.5gb+me"]["ciProfileId"]) == (7, 0)
    assert found["nodeResources"]["mig.das.com/1g.5gb"] == "14"


async def test_s09_only_gpus_on_which_slices_can_be_placed_are_in_the_original_form() -> None:
    gpus = [{"product": "NVIDIA A100-PCIE-40GB", "count": 1, "mig": False}, {"product": "NVIDIA A30", "count": 1}]
    async with agent_node(annotations={names.EMULATED_GPUS: json.dumps(gpus)}) as node:
        await node.start_agent()
        found = await inventory(node)
        assert [gpu["gpuName"] for gpu in found["nodeGpus"]] == ["NVIDIA A30"]
        assert "1g.6gb" in found["migPlacement"]
        assert "1g.5gb" not in found["migPlacement"]


async def test_s09_profiles_that_a_node_no_longer_has_leave_the_inventory(node: AgentNode) -> None:
    assert "1g.5gb" in (await inventory(node))["migPlacement"]
    await node.annotate_node(**{"apportion.io__emulated-gpus": '[{"product": "NVIDIA A30", "count": 1}]'})

    async def replaced() -> bool:
        found = await inventory(node)
        profiles = [*found["migPlacement"], *found["nodeResources"]]
        return "1g.6gb" in profiles and not any("5gb" in profile for profile in profiles)

    await node.eventually(replaced, "the inventory is that of an A30")
    status = (await node.client.get(kinds.NODE_ACCELERATORS, NODE, namespace=names.DAS_NAMESPACE))["status"]
    assert [gpu["model"] for gpu in status["gpus"]] == ["NVIDIA A30"]


def state(used: int | None, *, ready: bool = True) -> NodeReport:
    """One pod on one GPU, of which it uses so many MiB."""
    device = DeviceUUID(GPUS[0])
    use = Use(GpuUser(PodUID("uid-a"), "default", "a", {device: 2000}, {}), device, used, 2000)
    return NodeReport((), readiness.READY if ready else readiness.UNREGISTERED, (), {}, uses=[use])


async def test_x05_used_memory_alone_is_written_at_most_every_15_seconds_and_only_if_it_changed() -> None:
    now = 0.0
    async with agent_node() as node:
        settings = dataclasses.replace(node.settings, memory_report_seconds=15.0)
        report = AcceleratorReport(Client(node.agent_transport()), settings, "nvidia-mig", now=lambda: now)
        informing = asyncio.create_task(report.informer.run())
        await report.informer.synced()
        await report.publish(state(None), "")
        await node.eventually(report.informer.items, "the object is known")
        steps: list[tuple[float, NodeReport, bool, list[int]]] = [
            (0, state(None), False, []),
            (0, state(100), True, [100]),
            (0, state(100), False, [100]),
            (14, state(200), False, [100]),
            (15, state(300), True, [300]),
            (16, state(400), False, [300]),
            (17, state(500, ready=False), True, [500]),  # with what is written anyway
            (31, state(600, ready=False), False, [500]),
            (32, state(500, ready=False), False, [500]),
            (33, state(None, ready=False), True, []),
        ]
        for now, told, is_written, listed in steps:
            before = (await node.accelerator()).metadata.resource_version
            await report.publish(told, "")
            found = await node.accelerator()
            assert (found.metadata.resource_version != before) is is_written, now
            assert [use.used_mib for use in found.status.memory_use] == listed, now
        informing.cancel()
