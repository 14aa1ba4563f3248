"""When things do not go as planned: told clearly, tried again, nothing destroyed."""

from __future__ import annotations

import asyncio
import json

import pytest

from apportion.apis import kinds
from apportion.apis.custom_resources import claims
from pocketkube.kubelet.devices.plugin import PluginError
from tests.node.agent_node import GPUS, JSON, NODE, AgentNode, agent_node


async def test_s07_ids_that_no_container_holds_are_refused(node: AgentNode) -> None:
    plugin = node.kubelet._plugins["mig.das.com/1g.5gb"]
    with pytest.raises(PluginError, match=r"the kubelet recorded no pod for the devices 1g.5gb-3"):
        await plugin.pre_start(["1g.5gb-3"])


async def test_s07_a_container_without_a_claim_does_not_start_and_does_once_it_has_one(node: AgentNode) -> None:
    pod = await node.pod("a", {"mig.das.com/1g.5gb": 2})
    await node.claim(pod, "1g.5gb", 0, index=0)
    await node.bind(pod)
    await node.admit(pod)
    with pytest.raises(PluginError, match=r"the kubelet allocated 2 x 1g.5gb, but there are 1 claims"):
        await node.start(pod)
    assert await node.slices() == []
    await node.claim(pod, "1g.5gb", 1, index=1)
    assert (await node.start(pod))["CUDA_VISIBLE_DEVICES"] == "0,1"


async def test_s07_a_claim_that_comes_late_is_waited_for(node: AgentNode) -> None:
    pod = await node.pod("a", {"mig.das.com/1g.5gb": 1})
    await node.bind(pod)
    await node.admit(pod)
    starting = asyncio.create_task(node.start(pod))
    await asyncio.sleep(0.3)
    await node.claim(pod, "1g.5gb", 0)
    assert (await starting)["CUDA_VISIBLE_DEVICES"] == "0"


async def test_s07_a_slice_that_cannot_be_made_is_shown_on_the_claim_and_tried_again(node: AgentNode) -> None:
    await inject(node, kind="lost", gpu=0)
    pod = await node.scheduled("a")
    with pytest.raises(PluginError, match="does not respond"):
        await node.run(pod)
    (claim,) = await node.claims()
    assert claim.state == claims.PROCESSING
    assert "does not respond" in claim.status.conditions[0].message
    await node.annotate_node(**{"apportion.io__emulated-failures": None})
    await node.eventually(lambda: attempt(node, pod), "then it starts")
    (claim,) = await node.claims()
    assert claim.state == claims.IN_USE
    assert claim.status.conditions[0].message == "Allocation is inUse"


async def test_s07_a_slice_that_the_driver_refuses_is_made_at_another_place(node: AgentNode) -> None:
    await inject(node, kind="refuse", times=2)
    pod = await node.scheduled("a", start=3)
    environment = await node.run(pod)
    (claim,) = await node.claims()
    assert (claim.spec.gpu_uuid, claim.spec.mig_placement.start) != (GPUS[0], 3)
    assert await node.slices() == environment["NVIDIA_VISIBLE_DEVICES"].split(",") == [claim.status.mig_uuid]
    await node.eventually(lambda: has_event(node, "SliceMoved"), "an event says so")


async def test_s07_a_pod_whose_slice_the_driver_refuses_everywhere_is_marked_with_the_reason(node: AgentNode) -> None:
    await inject(node, kind="refuse")
    pod = await node.scheduled("a")
    with pytest.raises(PluginError, match="the driver refused to create the slice"):
        await node.run(pod)
    assert await message_has(node, "the driver refused to create the slice")
    (claim,) = await node.claims()
    assert "the driver refused to create the slice" in claim.lost
    await node.delete(pod)
    await node.eventually(node.clean, "it leaves nothing behind")


async def test_s08_a_busy_slice_keeps_its_claim_until_it_can_be_destroyed(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    await node.run(pod)
    await inject(node, kind="busy")
    await node.delete(pod)
    await node.eventually(lambda: message_has(node, "a process still uses it"), "the claim says why it stays")
    assert len(await node.slices()) == 1
    assert node.cdi_files() == []
    await node.annotate_node(**{"apportion.io__emulated-failures": None})
    await node.eventually(node.clean, "then all goes")


async def test_s11_a_lost_gpu_takes_its_devices_and_gives_them_back(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    await node.run(pod)
    await inject(node, kind="lost", gpu=0)
    await node.eventually(lambda: node.kubelet.totals()["mig.das.com/1g.5gb"] == (14, 7), "half are unhealthy")
    held = {name for entry in node.kubelet.ledger.entries() for name in entry[3].ids}
    assert held <= node.kubelet.ledger._healthy["mig.das.com/1g.5gb"]
    assert [gpu.healthy for gpu in (await node.accelerator()).status.gpus] == [False, True]
    other = await node.scheduled("b", start=3)
    with pytest.raises(PluginError, match="does not respond"):
        await node.run(other)
    await node.delete(pod)
    await node.eventually(lambda: message_has(node, "does not respond"), "its claim waits for the GPU")
    await node.annotate_node(**{"apportion.io__emulated-failures": None})
    await node.eventually(lambda: node.kubelet.totals()["mig.das.com/1g.5gb"] == (14, 14), "all are back")
    await node.start(other)
    await node.delete(other)
    await node.eventually(node.clean, "nothing was lost for ever")


async def test_s07_a_slow_gpu_does_not_hold_up_the_other(node: AgentNode) -> None:
    await inject(node, kind="slow", gpu=0, seconds=1.5)
    slow, fast = await node.scheduled("slow", gpu=0), await node.scheduled("fast", gpu=1)
    await node.admit(slow)
    await node.admit(fast)
    waiting = asyncio.create_task(node.start(slow))
    await asyncio.sleep(0.1)
    await asyncio.wait_for(node.start(fast), 1.0)
    assert not waiting.done()
    await waiting


async def test_s07_a_broken_cdi_folder_is_told_and_nothing_is_lost(node: AgentNode) -> None:
    folder = node.settings.cdi_dir
    folder.rmdir()
    folder.write_text("in the way")
    pod = await node.scheduled("a")
    with pytest.raises(PluginError, match="cdi"):
        await node.run(pod)
    (claim,) = await node.claims()
    assert claim.state == claims.PROCESSING
    folder.unlink()
    environment = await node.start(pod)
    assert await node.slices() == [environment["NVIDIA_VISIBLE_DEVICES"]]


@pytest.mark.parametrize(
    ("gpu", "start", "size", "text"),
    [
        (7, 0, 1, "is not on this node"),
        (0, 7, 1, "is impossible: 1g.5gb has size 1 and starts at 0, 1, 2, 3, 4, 5, 6"),
        (0, 0, 2, "is impossible"),
    ],
)
async def test_s06_a_claim_that_no_gpu_can_fulfil_is_refused(
    node: AgentNode, gpu: int, start: int, size: int, text: str
) -> None:
    pod = await node.pod("a", {"mig.das.com/1g.5gb": 1})
    await node.claim(pod, "1g.5gb", start, gpu=gpu, size=size)
    await node.bind(pod)
    with pytest.raises(PluginError, match=text):
        await node.run(pod)
    await node.delete(pod)
    await node.eventually(node.clean, "it leaves nothing behind")


async def test_s06_the_loser_of_an_overlap_gets_another_place(node: AgentNode) -> None:
    winner, loser = await node.scheduled("a", "3g.20gb", 0), await node.scheduled("b", "2g.10gb", 2)
    await node.run(winner)
    environment = await node.run(loser)
    claim = await node.get(f"{loser['metadata']['uid']}-main-0")
    assert claim.spec.gpu_uuid == GPUS[0]
    assert claim.spec.mig_placement.start == 4
    assert environment["NVIDIA_VISIBLE_DEVICES"] == claim.status.mig_uuid
    await node.eventually(lambda: has_event(node, "SliceMoved"), "an event says so")


async def test_s06_a_loser_without_another_place_is_marked_with_the_reason(node: AgentNode) -> None:
    await node.annotate_node(**{"apportion.io__emulated-gpus": '[{"product": "NVIDIA A100-PCIE-40GB", "count": 1}]'})
    await node.eventually(lambda: node.kubelet.totals()["mig.das.com/7g.40gb"] == (1, 1), "one GPU")
    winner, loser = await node.scheduled("a", "7g.40gb"), await node.scheduled("b", "3g.20gb")
    await node.run(winner)
    with pytest.raises(PluginError, match=r"no other placement for 3g.20gb is free"):
        await node.run(loser)
    marked = await node.get(f"{loser['metadata']['uid']}-main-0")
    assert "no other placement for 3g.20gb is free on this node" in marked.lost
    pod = await node.client.get(kinds.PODS, "b", namespace="default")
    assert not pod["metadata"].get("deletionTimestamp"), "agents evict nobody"
    await node.delete(loser)
    await node.eventually(lambda: one_claim(node), "the winner is untouched")
    assert len(await node.slices()) == 1


async def test_s06_a_place_that_was_freed_a_moment_ago_is_no_overlap(node: AgentNode) -> None:
    for round_ in range(5):
        old = await node.scheduled(f"old-{round_}", "7g.40gb")
        await node.run(old)
        await node.delete(old)
        await node.eventually(node.clean, "the claim is gone")
        new = await node.scheduled(f"new-{round_}", "7g.40gb")
        await node.run(new)
        claim = await node.get(f"{new['metadata']['uid']}-main-0")
        assert claim.spec.gpu_uuid == GPUS[0]
        await node.delete(new)
        await node.eventually(node.clean, "gone")


async def inject(node: AgentNode, **failure: object) -> None:
    assert node.agent is not None
    before = node.agent.driver._failures.text  # type: ignore[attr-defined]
    await node.annotate_node(**{"apportion.io__emulated-failures": json.dumps([failure])})
    await node.eventually(lambda: node.agent.driver._failures.text != before, "the driver knows")  # type: ignore[union-attr,attr-defined]


async def attempt(node: AgentNode, pod: JSON) -> bool:
    try:
        return bool(await node.start(pod))
    except PluginError:
        return False


async def message_has(node: AgentNode, text: str) -> bool:
    return any(text in entry.message for claim in await node.claims() for entry in claim.status.conditions)


async def has_event(node: AgentNode, reason: str) -> bool:
    return any(event["reason"] == reason for event in await node.events())


async def one_claim(node: AgentNode) -> bool:
    return len(await node.claims()) == 1


async def test_s06_a_claim_that_finds_a_place_after_all_is_no_longer_marked(node: AgentNode) -> None:
    await node.annotate_node(**{"apportion.io__emulated-gpus": '[{"product": "NVIDIA A100-PCIE-40GB", "count": 1}]'})
    await node.eventually(lambda: node.kubelet.totals()["mig.das.com/7g.40gb"] == (1, 1), "one GPU")
    winner, loser = await node.scheduled("a", "7g.40gb"), await node.scheduled("b", "3g.20gb")
    await node.run(winner)
    with pytest.raises(PluginError):
        await node.run(loser)
    await node.delete(winner)
    await node.eventually(lambda: one_claim(node), "the winner is gone")
    await node.start(loser)
    (claim,) = await node.claims()
    assert (claim.state, claim.lost) == (claims.IN_USE, "")


async def test_s09_gpus_stay_as_they_are_while_the_node_object_does_not_exist() -> None:
    """Annotations of the Node say which GPUs there are and how they are divided: without the object, nobody knows."""
    declared = {"apportion.io/emulated-gpus": '[{"product": "NVIDIA A100-PCIE-40GB", "count": 3}]'}
    async with agent_node(annotations=declared) as node:
        await node.start_agent()
        await node.client.delete(kinds.NODES, NODE)
        await node.stop_agent()
        await node.start_agent(ready=False)
        await node.eventually(lambda: "Node object" in str(node.agent and node.agent.readiness), "the agent waits")
        hardware = json.loads((node.settings.state_dir / "emulated-gpus.json").read_text())
        assert len(hardware["gpus"]) == 3
        await node.client.create(kinds.NODES, {"metadata": {"name": NODE, "annotations": declared}})
        await node.eventually(node.is_ready, "the agent is ready again")
        assert len((await node.accelerator()).status.gpus) == 3
