"""What an agent finds when it comes back."""

from __future__ import annotations

import shutil

from apportion.apis import kinds
from apportion.apis.custom_resources import claims
from apportion.apis.placements import SlicePlacement
from apportion.emulation.gpus.driver import EmulatedDriver
from tests.node.agent_node import GPUS, NODE, AgentNode


async def test_s08_an_agent_that_restarts_adopts_what_runs(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    environment = await node.run(pod)
    await node.restart_agent()
    assert await node.start(pod) == environment
    assert len(await node.slices()) == 1
    await node.delete(pod)
    await node.eventually(node.clean, "all is gone")


async def test_s08_pods_that_ended_while_the_agent_was_down_are_released_when_it_is_back(node: AgentNode) -> None:
    pods = [await node.scheduled(f"p-{n}", start=n) for n in range(3)]
    for pod in pods:
        await node.run(pod)
    await node.stop_agent()
    for pod in pods:
        await node.delete(pod)
    await node.start_agent()
    await node.eventually(node.clean, "all is gone")


async def test_s08_lost_records_are_restored_from_the_claims(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    environment = await node.run(pod)
    await node.stop_agent()
    (node.settings.state_dir / "slices.json").write_bytes(b"not json")
    await node.start_agent()
    assert await node.start(pod) == environment
    (condition,) = (await node.accelerator()).status.conditions
    assert condition.type == "Ready"
    await node.delete(pod)
    await node.eventually(node.clean, "all is gone, the slice too")


async def test_s08_a_slice_that_it_did_not_make_is_reported_and_never_destroyed(bare: AgentNode) -> None:
    driver = EmulatedDriver(NODE, bare.settings.state_dir)
    await driver.configure({})
    foreign = await driver.create(SlicePlacement(GPUS[0], "2g.10gb", 0, 2))
    await bare.start_agent()
    conditions = {entry.type: entry for entry in (await bare.accelerator()).status.conditions}
    assert foreign.uuid in conditions["UnknownSlices"].message
    pod = await bare.scheduled("a", start=2)
    await bare.run(pod)
    await bare.restart_agent()
    await bare.delete(pod)
    await bare.eventually(lambda: no_claims(bare), "the claim is gone")
    assert await bare.slices() == [foreign.uuid]


async def test_s08_after_a_reboot_slices_are_made_again_before_the_container_starts(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    before = await node.run(pod)
    await node.stop_agent()
    await node.kubelet.stop()
    await node.end(pod)
    (node.settings.state_dir / "emulated-gpus.json").unlink()
    shutil.rmtree(node.settings.cdi_dir)
    await node.kubelet.start()
    await node.start_agent()
    after = await node.start(pod)
    assert after["NVIDIA_VISIBLE_DEVICES"] != before["NVIDIA_VISIBLE_DEVICES"]
    (claim,) = await node.claims()
    assert claim.status.mig_uuid == after["NVIDIA_VISIBLE_DEVICES"]
    assert claim.state == claims.IN_USE
    assert await node.slices() == [claim.status.mig_uuid]


async def test_s08_files_of_pods_that_are_gone_are_removed_and_others_left(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    await node.run(pod)
    await node.stop_agent()
    ours = node.cdi_files()[0]
    stale = ours.with_name("apportion-slice-s0123.json")
    stale.write_text(ours.read_text().replace(pod["metadata"]["uid"], "gone"))
    foreign = ours.with_name("nvidia.yaml")
    foreign.write_text("cdiVersion: 0.5.0\n")
    odd = ours.with_name("apportion-slice-odd.json")
    odd.write_text("{}")
    await node.start_agent()
    await node.eventually(lambda: not stale.exists(), "the stale file is gone")
    assert ours.exists()
    assert foreign.exists()
    assert odd.exists()


async def test_s08_a_claim_removed_by_force_leaves_no_slice_behind(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    await node.run(pod)
    (claim,) = await node.claims()
    await node.client.patch(
        kinds.ALLOCATION_CLAIMS, claim.name, {"metadata": {"finalizers": []}}, namespace="das-operator"
    )
    await node.client.delete(kinds.ALLOCATION_CLAIMS, claim.name, namespace="das-operator")
    assert len(await node.slices()) == 1
    await node.delete(pod)
    await node.eventually(node.clean, "all is gone")


async def test_a_second_agent_on_the_node_waits_until_the_first_one_ends(node: AgentNode) -> None:
    first, task = node.agent, node._task
    await node.start_agent(ready=False)
    second = node.agent
    assert first is not None
    assert second is not None
    await node.run(await node.scheduled("a"))
    assert not second.readiness.ready
    assert task is not None
    task.cancel()
    await node.eventually(lambda: second.readiness.ready, "the second one takes over")
    await node.run(await node.scheduled("b", start=1))


async def no_claims(node: AgentNode) -> bool:
    return not await node.claims()
