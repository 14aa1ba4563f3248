"""The agent serves existing devices: static MIG slices and whole GPUs, with a kubelet on one node."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from apportion.apis import kinds, migconfig, names
from apportion.node.kubelet import capacity
from pocketkube.kubelet.containers import cdi
from pocketkube.kubelet.devices.ledger import AllocationError
from tests.builders.pods import container
from tests.node.agent_node import GPUS, JSON, NODE, AgentNode, agent_node

SMALL, MEDIUM = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"
H200 = {"product": "NVIDIA-H200", "count": 4, "memoryMiB": 71680}
LAYOUT = (("2g.20gb", 0, 2), ("2g.20gb", 2, 2), ("2g.20gb", 4, 2), ("1g.10gb", 6, 1))


def described(config: str | None = None, *gpus: JSON) -> dict[str, str]:
    found = {names.EMULATED_GPUS: json.dumps(list(gpus) or [H200])}
    return found if config is None else found | {names.MIG_CONFIG: config}


def selected(devices: object, index: object = "all") -> str:
    entry = {"devices": index, "mig-enabled": True, "mig-devices": devices}
    return json.dumps({"version": "v1", "mig-configs": {"selected": [entry]}})


@pytest.fixture
async def node() -> AsyncIterator[AgentNode]:
    """Two A100 that are cut on demand."""
    async with agent_node() as place:
        await place.start_agent()
        await totals_become(place, {"mig.das.com/1g.5gb": (14, 14), "mig.das.com/2g.10gb": (6, 6)})
        yield place


@pytest.fixture
async def medium() -> AsyncIterator[AgentNode]:
    async with agent_node(annotations=described(migconfig.render(dict.fromkeys(range(4), LAYOUT)))) as place:
        await place.start_agent()
        await totals_become(place, {MEDIUM: (12, 12), SMALL: (4, 4)})  # registered is not yet listed
        yield place


async def label(node: AgentNode) -> str | None:
    found = await node.client.get(kinds.NODES, NODE)
    return (found["metadata"].get("labels") or {}).get("nvidia.com/mig.config.state")


async def totals_become(node: AgentNode, wanted: dict[str, tuple[int, int]]) -> None:
    def there() -> bool:
        found = node.kubelet.totals()
        return all(found.get(resource, (0, 0)) == amount for resource, amount in wanted.items())

    await node.eventually(there, f"the kubelet has {wanted}")


async def state_becomes(node: AgentNode, wanted: str | None) -> None:
    async def there() -> bool:
        return await label(node) == wanted

    await node.eventually(there, f"the label says {wanted}")


async def running(node: AgentNode, name: str, limits: dict[str, int]) -> tuple[JSON, dict[str, str]]:
    pod = await node.pod(name, limits)
    await node.bind(pod)
    return pod, await node.run(pod)


async def test_f01_a_layout_shows_as_capacity_and_no_gpu_is_whole(medium: AgentNode) -> None:
    await medium.eventually(lambda: "nvidia.com/gpu" in medium.kubelet.totals(), "whole GPUs are listed: none")
    assert medium.kubelet.totals() == {MEDIUM: (12, 12), SMALL: (4, 4), "nvidia.com/gpu": (0, 0)}
    await state_becomes(medium, "success")
    accelerator = await medium.accelerator()
    # In MIG mode, and nothing is made on them on demand.
    assert [(gpu.mig_enabled, gpu.profiles) for gpu in accelerator.status.gpus] == [(True, [])] * 4
    cuts = [(cut.profile, cut.start, cut.size) for cut in accelerator.status.gpus[0].fixed]
    assert cuts == list(LAYOUT)


async def test_f01_a_container_gets_every_device_that_it_holds_in_one_list(medium: AgentNode) -> None:
    for number in range(4):  # the kubelet's order of calls and of names is random
        _, environment = await running(medium, f"p{number}", {MEDIUM: 2, SMALL: 1})
        uuids = environment["NVIDIA_VISIBLE_DEVICES"].split(",")
        assert len(set(uuids)) == 3
        assert environment["CUDA_VISIBLE_DEVICES"] == "0,1,2"
    assert (await medium.claims()) == []


async def test_f01_devices_are_used_once_and_again_when_they_are_free(medium: AgentNode) -> None:
    seen = [await running(medium, f"p{number}", {SMALL: 1}) for number in range(4)]
    assert len({environment["NVIDIA_VISIBLE_DEVICES"] for _, environment in seen}) == 4
    fifth = await medium.pod("p4", {SMALL: 1})
    with pytest.raises(AllocationError):
        await medium.admit(fifth)
    await medium.delete(seen[1][0])
    _, environment = await running(medium, "p5", {SMALL: 1})
    assert environment == seen[1][1]


async def test_f01_an_init_container_passes_its_device_on(medium: AgentNode) -> None:
    init = [container("first", limits={SMALL: "1"})]
    pod = await medium.pod("p", containers=[container("main", limits={SMALL: "1", MEDIUM: "1"})], init=init)
    await medium.bind(pod)
    await medium.admit(pod)
    assert await medium.start(pod, "first") == await medium.start(pod)


async def test_f09_a_container_has_an_nvidia_smi_that_shows_its_devices(medium: AgentNode) -> None:
    pod, environment = await running(medium, "p", {MEDIUM: 1})
    (uuid,) = environment["NVIDIA_VISIBLE_DEVICES"].split(",")
    edits = cdi.resolve(medium.root, medium.kubelet.run_options(pod["metadata"]["uid"], "main").cdi)
    ((script, inside),) = edits.mounts
    assert inside == "/usr/bin/nvidia-smi"
    lines = (await output(script, "-L")).splitlines()
    assert lines[0].startswith("GPU 0: NVIDIA-H200 (UUID: GPU-")
    assert lines[1:] == [f"  MIG 2g.20gb     Device  0: (UUID: {uuid})"]
    await medium.delete(pod)
    await medium.eventually(lambda: not Path(script).exists(), "the script goes with its pod")


async def test_f09_the_nodes_own_nvidia_smi_is_true_to_what_pods_hold(medium: AgentNode) -> None:
    script = str(medium.settings.state_dir / "nvidia-smi")
    query = ("--query-gpu=memory.used", "--format=csv,noheader,nounits")

    async def used() -> list[int]:
        return [int(line) for line in (await output(script, *query)).split()]

    assert await used() == [0, 0, 0, 0]
    listed = await output(script, "-L")
    assert (listed.count("MIG 2g.20gb"), listed.count("MIG 1g.10gb")) == (12, 4)
    pod, _ = await running(medium, "p", {MEDIUM: 1, SMALL: 1})

    async def shows(wanted: int) -> bool:
        return sum(await used()) == wanted

    await medium.eventually(lambda: shows(30720), "30 GB are in use")
    await medium.delete(pod)
    await medium.eventually(lambda: shows(0), "nothing is in use")


async def test_f09_a_container_sees_its_slice_that_was_made_on_demand(node: AgentNode) -> None:
    pod = await node.scheduled("a", "2g.10gb", 2)
    environment = await node.run(pod)
    edits = cdi.resolve(node.root, node.kubelet.run_options(pod["metadata"]["uid"], "main").cdi)
    ((path, _),) = edits.mounts
    assert (await output(path, "-L")).splitlines() == [
        f"GPU 0: NVIDIA A100-PCIE-40GB (UUID: {GPUS[0]})",
        f"  MIG 2g.10gb     Device  0: (UUID: {environment['NVIDIA_VISIBLE_DEVICES']})",
    ]
    assert "0MiB /  9856MiB" in await output(path)
    await node.delete(pod)
    await node.eventually(lambda: not Path(path).exists(), "the script goes with its pod")


async def test_f02_a_new_layout_changes_capacity_at_once_where_gpus_are_empty(medium: AgentNode) -> None:
    await medium.annotate_node(**{names.MIG_CONFIG: selected({"1g.10gb": 7}, [0])})
    await totals_become(medium, {MEDIUM: (0, 0), SMALL: (7, 7), "mig.das.com/1g.10gb": (21, 21)})
    await medium.annotate_node(**{names.MIG_CONFIG: selected(["7g.80gb"])})
    await totals_become(medium, {"nvidia.com/mig-7g.70gb": (4, 4), SMALL: (0, 0), "mig.das.com/1g.10gb": (0, 0)})
    await state_becomes(medium, "success")
    await medium.annotate_node(**{names.MIG_CONFIG: None})
    await totals_become(medium, {"nvidia.com/mig-7g.70gb": (0, 0), "mig.das.com/1g.10gb": (28, 28)})
    await state_becomes(medium, None)


async def test_f02_a_gpu_with_a_live_pod_keeps_its_layout_until_it_is_empty(medium: AgentNode) -> None:
    pod, environment = await running(medium, "p", {MEDIUM: 1})
    await medium.annotate_node(**{names.MIG_CONFIG: selected({"1g.10gb": 7})})
    # One GPU keeps 3 + 1; of these only what the pod holds is still good for anything.
    await totals_become(medium, {MEDIUM: (3, 1), SMALL: (22, 21)})
    await state_becomes(medium, "pending")
    assert await medium.start(pod) == environment  # a restart in place
    await medium.vanish(pod)  # by force: the processes go on
    await asyncio.sleep(3 * medium.settings.sweep_seconds)
    assert await label(medium) == "pending"
    await medium.end(pod)
    await totals_become(medium, {MEDIUM: (0, 0), SMALL: (28, 28)})
    await state_becomes(medium, "success")


async def test_f02_a_gpu_with_slices_made_on_demand_is_laid_out_when_they_are_gone(node: AgentNode) -> None:
    pod = await node.scheduled("a", "1g.5gb", 3)
    environment = await node.run(pod)
    await node.annotate_node(**{names.MIG_CONFIG: selected({"3g.20gb": 2})})
    # The other GPU is cut at once; on this one nothing new is made, and what is there goes on.
    await totals_become(node, {"nvidia.com/mig-3g.20gb": (2, 2), "mig.das.com/1g.5gb": (7, 1)})
    await state_becomes(node, "pending")

    async def takes_nothing_new() -> bool:
        found = {gpu.uuid: gpu for gpu in (await node.accelerator()).status.gpus}
        return not found[GPUS[0]].healthy and bool(found[GPUS[0]].profiles)

    await node.eventually(takes_nothing_new, "schedulers see it as unhealthy")
    assert await node.start(pod) == environment
    await node.delete(pod)
    await totals_become(node, {"nvidia.com/mig-3g.20gb": (4, 4), "mig.das.com/1g.5gb": (0, 0)})
    await state_becomes(node, "success")


async def test_f02_a_gpu_that_is_promised_to_a_pod_is_not_laid_out_before_the_pod_is_over(node: AgentNode) -> None:
    pod = await node.scheduled("a", "1g.5gb", 3)
    await node.admit(pod)  # its image is being pulled
    await node.annotate_node(**{names.MIG_CONFIG: selected({"3g.20gb": 2})})
    await totals_become(node, {"nvidia.com/mig-3g.20gb": (2, 2), "mig.das.com/1g.5gb": (7, 1)})
    await state_becomes(node, "pending")
    await node.start(pod)
    (claim,) = await node.claims()
    assert (claim.spec.gpu_uuid, claim.spec.mig_placement.start) == (GPUS[0], 3)
    await node.delete(pod)
    await totals_become(node, {"nvidia.com/mig-3g.20gb": (4, 4), "mig.das.com/1g.5gb": (0, 0)})
    await state_becomes(node, "success")


async def test_f02_a_gpu_is_not_laid_out_while_somebody_works_on_it(node: AgentNode) -> None:
    assert node.agent is not None
    async with node.agent._locks.gpu(GPUS[1]):
        await node.annotate_node(**{names.MIG_CONFIG: selected({"3g.20gb": 2})})

        async def laid_out() -> list[bool]:
            return [bool(gpu.fixed) for gpu in await node.agent.driver.discover()]  # type: ignore[union-attr]

        async def first_is() -> bool:
            return (await laid_out())[0]

        await node.eventually(first_is, "the other GPU is laid out")
        await asyncio.sleep(3 * node.settings.sweep_seconds)
        assert await laid_out() == [True, False]
        await node.scheduled("a", "1g.5gb", 0, gpu=1)
        await node.eventually(node.agent._store.all, "the agent knows the claim")
    await state_becomes(node, "pending")
    assert await laid_out() == [True, False]


async def test_f02_a_layout_that_cannot_be_changes_nothing_and_says_so(medium: AgentNode) -> None:
    for text in ("{", selected({"9g.90gb": 1}), selected({"2g.20gb": 4})):
        await medium.annotate_node(**{names.MIG_CONFIG: text})
        await state_becomes(medium, "failed")
        assert medium.kubelet.totals()[MEDIUM] == (12, 12)
        await medium.annotate_node(**{names.MIG_CONFIG: migconfig.render(dict.fromkeys(range(4), LAYOUT))})
        await state_becomes(medium, "success")


async def test_f02_static_devices_outlive_the_agent(medium: AgentNode) -> None:
    pod, environment = await running(medium, "p", {MEDIUM: 1})
    await medium.restart_agent()
    await totals_become(medium, {MEDIUM: (12, 12), SMALL: (4, 4)})
    assert await medium.start(pod) == environment


async def test_x04_whole_gpus_static_slices_and_slices_on_demand_stand_side_by_side() -> None:
    gpus = [{"product": "NVIDIA A100-PCIE-40GB", "count": 2, "mig": False}, {"product": "NVIDIA A30", "count": 2}]
    config = {"mig-configs": {"selected": [{"devices": [3], "mig-devices": ["2g.12gb", "1g.6gb"]}]}}
    async with agent_node(annotations=described(json.dumps(config), *gpus)) as node:
        await node.start_agent()
        await totals_become(
            node,
            {
                "nvidia.com/gpu": (2, 2),
                "nvidia.com/mig-2g.12gb": (1, 1),
                "nvidia.com/mig-1g.6gb": (1, 1),
                "mig.das.com/1g.6gb": (4, 4),  # of the one that is cut on demand
            },
        )
        pod, environment = await running(node, "whole", {"nvidia.com/gpu": 2})
        assert environment["NVIDIA_VISIBLE_DEVICES"] == f"{GPUS[0]},{GPUS[1]}"
        edits = cdi.resolve(node.root, node.kubelet.run_options(pod["metadata"]["uid"], "main").cdi)
        assert (await output(edits.mounts[0][0], "-L")).splitlines() == [
            f"GPU 0: NVIDIA A100-PCIE-40GB (UUID: {GPUS[0]})",
            f"GPU 1: NVIDIA A100-PCIE-40GB (UUID: {GPUS[1]})",
        ]


async def test_x04_a_gpu_that_fails_is_unhealthy_and_still_counted() -> None:
    gpus = [{"product": "NVIDIA A100-PCIE-40GB", "count": 2, "mig": False}]
    failures = {names.EMULATED_FAILURES: json.dumps([{"kind": "lost", "gpu": 1}])}
    async with agent_node(annotations=described(None, *gpus) | failures) as node:
        await node.start_agent()
        await totals_become(node, {"nvidia.com/gpu": (2, 1)})


def test_f02_ids_that_containers_hold_outlive_a_shrinking_node() -> None:
    ids = [f"1g.5gb-{number}" for number in range(4)]
    assert capacity.keep_allocated(ids, frozenset()) == ids
    assert capacity.keep_allocated(ids, frozenset({"1g.5gb-3", "1g.5gb-9"})) == [
        "1g.5gb-0",
        "1g.5gb-1",
        "1g.5gb-3",
        "1g.5gb-9",
    ]
    assert capacity.keep_allocated([], frozenset({"1g.5gb-9"})) == ["1g.5gb-9"]


async def output(script: str, *arguments: str) -> str:
    done = await asyncio.to_thread(
        subprocess.run, ["sh", script, *arguments], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done
    return done.stdout
