"""What makes a node not ready is reported, breaks nothing that runs, and ends as soon as it is repaired."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process

import aiohttp
import pytest

from apportion.apis import kinds
from apportion.apis.custom_resources import claims
from apportion.apis.placements import SlicePlacement
from apportion.emulation.gpus.driver import EmulatedDriver
from pocketkube.api.http import HttpShell
from pocketkube.kubelet.devices.plugin import PluginError
from tests.node.agent_node import GPUS, NODE, AgentNode
from tests.node.test_failures import inject
from tests.node.test_process import environment_of, flags_of

PLUGIN_IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.17.1"


async def test_s08_places_of_unknown_slices_are_published_for_schedulers_to_avoid(bare: AgentNode) -> None:
    driver = EmulatedDriver(NODE, bare.settings.state_dir)
    await driver.configure({})
    await driver.create(SlicePlacement(GPUS[1], "2g.10gb", 4, 2))
    await driver.create(SlicePlacement(GPUS[1], "1g.5gb", 0, 1))
    await bare.start_agent()
    await bare.run(await bare.scheduled("a", start=3))
    first, second = (await bare.accelerator()).status.gpus
    assert first.foreign == []
    assert [(found.start, found.size) for found in second.foreign] == [(0, 1), (4, 2)]
    await driver.destroy(SlicePlacement(GPUS[1], "2g.10gb", 4, 2))
    await bare.eventually(lambda: foreign(bare, 1, [(0, 1)]), "what others remove is free again")


async def test_s08_a_claim_on_an_unknown_slice_gets_another_place(bare: AgentNode) -> None:
    driver = EmulatedDriver(NODE, bare.settings.state_dir)
    await driver.configure({})
    theirs = await driver.create(SlicePlacement(GPUS[0], "2g.10gb", 0, 2))
    await bare.start_agent()
    pod = await bare.scheduled("a", start=0)
    environment = await bare.run(pod)
    (claim,) = await bare.claims()
    assert (claim.spec.gpu_uuid, claim.spec.mig_placement.start) != (GPUS[0], 0)
    assert theirs.uuid not in environment["NVIDIA_VISIBLE_DEVICES"]
    assert theirs.uuid in await bare.slices()


async def test_s10_beside_nvidias_device_plugin_nothing_is_made_and_what_runs_is_kept(node: AgentNode) -> None:
    running = await node.scheduled("running")
    environment = await node.run(running)
    rival = await node.pod("rival", containers=[{"name": "ctr", "image": PLUGIN_IMAGE}])
    await node.bind(rival)
    await node.eventually(lambda: says(node, "ForeignDevicePlugin"), "the node says why it takes nothing")
    assert "default/rival" in (await node.accelerator()).status.conditions[0].message
    await node.eventually(
        lambda: node.kubelet.totals()["mig.das.com/1g.5gb"] == (14, 1), "only what is held is healthy"
    )
    late = await node.scheduled("late", start=1)
    node.kubelet.totals()
    with pytest.raises(Exception, match=r"devices|NVIDIA's device plugin"):
        await node.run(late)
    assert len(await node.slices()) == 1
    assert await node.start(running) == environment
    await node.vanish(rival)
    await node.eventually(node.is_ready, "it serves again")
    await node.eventually(lambda: node.kubelet.totals()["mig.das.com/1g.5gb"] == (14, 14), "and offers all")
    await node.run(late)


async def test_s10_a_pod_that_the_kubelet_let_in_is_refused_beside_nvidias_device_plugin(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    await node.admit(pod)
    rival = await node.pod("rival", containers=[{"name": "ctr", "image": PLUGIN_IMAGE}])
    await node.bind(rival)
    await node.eventually(lambda: says(node, "ForeignDevicePlugin"), "the node says why it takes nothing")
    with pytest.raises(PluginError, match="NVIDIA's device plugin runs on this node"):
        await node.start(pod)
    (claim,) = await node.claims()
    assert "NVIDIA's device plugin" in claim.status.conditions[0].message
    assert await node.slices() == []


async def test_s11_a_call_that_takes_long_is_told_and_its_slice_is_made_once(node: AgentNode) -> None:
    await node.stop_agent()
    object.__setattr__(node.settings, "answer_seconds", 0.3)
    await node.start_agent()
    await inject(node, kind="slow", seconds=2.0, times=1)
    pod = await node.scheduled("a")
    await node.admit(pod)
    with pytest.raises(PluginError, match=r"not ready after 0.3 s: the GPU or the API is slow; the work continues"):
        await node.start(pod)
    await node.eventually(lambda: in_use(node), "the work went on")
    (uuid,) = await node.slices()
    assert (await node.start(pod))["NVIDIA_VISIBLE_DEVICES"] == uuid


async def test_s08_a_slow_destruction_does_not_hold_up_the_rest(node: AgentNode) -> None:
    slow, other = await node.scheduled("slow", gpu=0), await node.scheduled("other", gpu=1)
    await node.run(slow)
    await node.run(other)
    await inject(node, kind="slow", gpu=0, seconds=1.5)
    await node.delete(slow)
    await node.delete(other)
    await node.eventually(lambda: holders(node, ["slow"]), "the other one goes first", seconds=10)
    await node.eventually(node.clean, "and then the slow one")


async def test_s09_a_folder_that_is_none_is_told_and_recovers_without_a_restart(bare: AgentNode) -> None:
    folder = bare.settings.cdi_dir
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("in the way")
    await bare.start_agent(ready=False)
    await bare.eventually(lambda: says(bare, "FolderNotWritable"), "the reason")
    folder.unlink()
    await bare.eventually(bare.is_ready, "it serves")
    pod = await bare.scheduled("a")
    await bare.run(pod)
    shutil.rmtree(folder)
    folder.write_text("in the way")
    await bare.eventually(lambda: says(bare, "FolderNotWritable"), "the reason again")
    folder.unlink()
    await bare.eventually(bare.is_ready, "it serves again")
    await bare.start(pod)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a read-only file system")
@pytest.mark.parametrize(("folder", "says_it"), [("cdi_dir", "FolderNotWritable"), ("state_dir", "cannot be opened")])
async def test_s09_a_read_only_file_system_is_told_and_recovers_without_a_restart(
    bare: AgentNode, folder: str, says_it: str
) -> None:
    shell = HttpShell(bare.server, None)
    await shell.start()
    path = getattr(bare.settings, folder)
    path.mkdir(parents=True)
    mounts = f"mount --bind {path} {path} && mount -o remount,ro,bind {path}"
    arguments = " ".join([sys.executable, "-m", "apportion", "node", *flags_of(bare)])
    process = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "--propagation", "private", "sh", "-c", f"{mounts} && exec {arguments}"),
        stderr=PIPE,
        env=os.environ | environment_of(bare, shell.url),
    )
    log = Log(process)
    try:
        told = (lambda: says(bare, says_it)) if folder == "cdi_dir" else (lambda: says_it in log.text)
        await bare.eventually(told, f"the agent says {says_it}: {log.text}")
        assert process.returncode is None
        remount = ("nsenter", "--target", str(process.pid), "--mount", "mount", "-o", "remount,rw,bind", str(path))
        assert await (await asyncio.create_subprocess_exec(*remount, stderr=DEVNULL)).wait() == 0
        await bare.eventually(lambda: says(bare, "Serving"), "it serves")
    finally:
        process.kill()
        await process.wait()
        await log.end()
        await shell.stop()


async def test_a_second_agent_says_that_it_waits_and_changes_nothing(node: AgentNode) -> None:
    first, task = node.agent, node._task
    await node.start_agent(ready=False)
    second = node.agent
    assert first is not None
    assert second is not None
    await node.eventually(lambda: "another agent runs on this node" in second.readiness.message, "it says so")
    async with aiohttp.ClientSession() as session, session.get(f"http://{second.address}/readyz") as answer:
        assert answer.status == 503
        assert "another agent runs on this node" in await answer.text()
    assert (await node.accelerator()).ready
    assert task is not None
    task.cancel()
    await asyncio.wait([task], timeout=10)


class Log:
    """What a process has said so far."""

    def __init__(self, process: Process) -> None:
        self.text = ""
        self._task = asyncio.create_task(self._read(process))

    async def end(self) -> None:
        await asyncio.wait([self._task], timeout=5)

    async def _read(self, process: Process) -> None:
        assert process.stderr is not None
        while line := await process.stderr.readline():
            self.text += line.decode()


async def says(node: AgentNode, reason: str) -> bool:
    listing = await node.client.list(kinds.NODE_ACCELERATORS, namespace="das-operator")
    return any(
        entry["reason"] == reason
        for item in listing.items
        for entry in item.get("status", {}).get("conditions", [])
        if entry["type"] == "Ready"
    )


async def foreign(node: AgentNode, gpu: int, wanted: list[tuple[int, int]]) -> bool:
    found = (await node.accelerator()).status.gpus[gpu].foreign
    return [(place.start, place.size) for place in found] == wanted


async def in_use(node: AgentNode) -> bool:
    return all(claim.state == claims.IN_USE for claim in await node.claims())


async def holders(node: AgentNode, wanted: list[str]) -> bool:
    return [claim.spec.pod_ref.name for claim in await node.claims()] == wanted
