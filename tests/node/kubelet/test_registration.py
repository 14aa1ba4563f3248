"""The agent and its kubelet: what is announced, and that it is announced again."""

from __future__ import annotations

import json
from pathlib import Path

import aiohttp
import pytest

from apportion.apis import kinds
from apportion.emulation.gpus import driver
from apportion.node.hardware import drivers
from apportion.node.hardware.partitioner import Unavailable
from tests.node.agent_node import AgentNode, agent_node

A100 = {
    "mig.das.com/1g.5gb": (14, 14),
    "mig.das.com/1g.5gb-plus-me": (2, 2),
    "mig.das.com/1g.10gb": (8, 8),
    "mig.das.com/2g.10gb": (6, 6),
    "mig.das.com/3g.20gb": (4, 4),
    "mig.das.com/4g.20gb": (2, 2),
    "mig.das.com/7g.40gb": (2, 2),
    "gpu.das.com/mem": (80, 80),
    "nvidia.com/gpu": (0, 0),  # all are in MIG mode
}


async def test_s07_one_plugin_per_profile_with_as_many_devices_as_the_grid_holds(node: AgentNode) -> None:
    await node.eventually(lambda: node.kubelet.totals() == A100, "the kubelet lists all")


async def test_m03_memory_never_blocks_what_the_grid_allows() -> None:
    gpus = [{"product": "NVIDIA H200", "count": 1}, {"product": "NVIDIA A30", "count": 2}]
    async with agent_node(annotations={"apportion.io/emulated-gpus": json.dumps(gpus)}) as node:
        await node.start_agent()
        totals = node.kubelet.totals()
        assert totals["gpu.das.com/mem"] == (143 + 2 * 24, 143 + 2 * 24)  # 3g.71gb beside four of 1g.18gb
        assert totals["mig.das.com/1g.6gb"] == (8, 8)
        assert totals["mig.das.com/1g.18gb"] == (7, 7)


async def test_m03_the_memory_resource_gives_a_container_nothing(node: AgentNode) -> None:
    pod = await node.pod("a", {"gpu.das.com/mem": 5})
    await node.bind(pod)
    assert await node.run(pod) == {}


async def test_s09_gpus_that_are_not_in_mig_mode_are_reported_and_not_sliced() -> None:
    gpus = [{"product": "NVIDIA A100-PCIE-40GB", "count": 1, "mig": False}, {"product": "NVIDIA A30", "count": 1}]
    async with agent_node(annotations={"apportion.io/emulated-gpus": json.dumps(gpus)}) as node:
        await node.start_agent()
        assert "mig.das.com/1g.5gb" not in node.kubelet.totals()
        accelerator = await node.accelerator()
        assert [(gpu.model, gpu.mig_enabled) for gpu in accelerator.status.gpus] == [
            ("NVIDIA A100-PCIE-40GB", False),
            ("NVIDIA A30", True),
        ]


async def test_s09_the_node_accelerator_names_gpus_profiles_and_the_agent(node: AgentNode) -> None:
    found = await node.accelerator()
    assert found.ready
    assert found.status.agent is not None
    assert (found.status.agent.name, found.status.agent.uid) == ("das-daemonset-x", "agent-uid")
    first = found.status.gpus[0]
    assert first.uuid.startswith("GPU-")
    assert first.memory_mib == 40960
    profiles = {profile.name: (profile.size, profile.starts) for profile in first.profiles}
    assert profiles["3g.20gb"] == (4, [0, 4])
    assert found.metadata.owner_references[0].kind == "Node"


async def test_s09_a_node_accelerator_that_somebody_deletes_comes_back(node: AgentNode) -> None:
    before = (await node.accelerator()).metadata.uid
    await node.client.delete(kinds.NODE_ACCELERATORS, "node-1", namespace="das-operator")
    await node.eventually(lambda: is_new(node, before), "a new one")


async def is_new(node: AgentNode, before: str) -> bool:
    return await node.is_ready() and (await node.accelerator()).metadata.uid != before


async def test_s07_the_agent_registers_again_after_every_restart_of_the_kubelet(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    first = await node.run(pod)
    for _ in range(3):
        await node.restart_kubelet()
        await node.eventually(lambda: node.kubelet.totals() == A100, "all resources are back")
        await node.eventually(node.is_ready, "the agent is ready")
    assert await node.start(pod) == first


async def test_s07_the_agent_registers_again_when_its_socket_vanishes(node: AgentNode) -> None:
    folder = node.settings.plugin_dir
    for path in folder.glob("apportion-*.sock"):
        path.unlink()
    await node.eventually(lambda: len(list(folder.glob("apportion-*.sock"))) == len(A100), "sockets are back")
    await node.eventually(lambda: node.kubelet.totals() == A100, "and announced")
    await node.run(await node.scheduled("a"))


async def test_s09_without_a_kubelet_the_node_is_not_ready(node: AgentNode) -> None:
    await node.kubelet.stop()
    await node.eventually(lambda: says(node, "NotRegistered"), "the NodeAccelerator says so")
    await node.kubelet.start()
    await node.eventually(node.is_ready, "ready again")


async def test_s09_an_agent_stopped_in_order_says_so(node: AgentNode) -> None:
    await node.stop_agent()
    assert await says(node, "AgentStopped")


async def says(node: AgentNode, reason: str) -> bool:
    (condition,) = (await node.accelerator()).status.conditions
    return condition.status == "False" and condition.reason == reason


async def test_s11_an_annotation_that_makes_no_sense_is_reported_and_can_be_corrected(bare: AgentNode) -> None:
    await bare.annotate_node(**{"apportion.io__emulated-gpus": '[{"product": "Voodoo 2"}]'})
    await bare.start_agent(ready=False)
    await bare.eventually(lambda: reports(bare, "Voodoo 2"), "the reason")
    await bare.annotate_node(**{"apportion.io__emulated-gpus": '[{"product": "NVIDIA A30", "count": 1}]'})
    await bare.eventually(bare.is_ready, "ready")


async def reports(node: AgentNode, text: str) -> bool:
    try:
        return text in (await node.accelerator()).status.conditions[0].message
    except Exception:  # noqa: BLE001  not written yet
        return False


async def test_s11_a_node_takes_more_gpus_while_the_agent_runs(node: AgentNode) -> None:
    await node.annotate_node(**{"apportion.io__emulated-gpus": '[{"product": "NVIDIA A100-PCIE-40GB", "count": 3}]'})
    await node.eventually(lambda: node.kubelet.totals()["mig.das.com/1g.5gb"] == (21, 21), "21 devices")
    assert len((await node.accelerator()).status.gpus) == 3


async def test_r03_probes_answer(node: AgentNode) -> None:
    assert node.agent is not None
    site = f"http://{node.agent.address}"
    async with aiohttp.ClientSession() as session:
        for path, text in (("/healthz", "ok"), ("/readyz", "ok"), ("/metrics", "apportion_node_ready 1.0")):
            async with session.get(site + path) as answer:
                assert answer.status == 200
                assert text in await answer.text()
        await node.kubelet.stop()
        async with session.get(f"{site}/readyz") as answer:
            assert answer.status == 503
            assert "The agent is not registered with the kubelet" in await answer.text()


async def test_an_unknown_driver_is_refused_with_the_list_of_those_there_are() -> None:
    with pytest.raises(Unavailable, match="'voodoo' is unknown: choose one of emulated, nvml"):
        drivers.open_driver("voodoo", drivers.Site("node-1", Path("unused")), {"emulated": driver.open_driver})
