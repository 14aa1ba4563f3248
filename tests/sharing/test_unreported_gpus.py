"""Nodes on which no agent of ours runs: GPUs are shared by what the kubelet offers and a label says. Rule G10."""

from __future__ import annotations

import pytest

from apportion.apis import kinds, names
from apportion.apis.shared_gpus import shared_gpus_of
from tests.binder.cluster import MIB, OTHER, SharingCluster, binding
from tests.scheduler.cluster import scheduling
from tests.sharing.observer import ShareObserver
from tests.sharing.planes import nothing_left, switch_on


@pytest.mark.parametrize("label", [str(MIB), ""], ids=["labelled", "no-label"])
async def test_g10_pods_join_a_gpu_that_no_agent_reports(shared: SharingCluster, label: str) -> None:
    slots = await shared.node(reported=False, label=label)
    await switch_on(shared)
    async with (
        ShareObserver(shared.client, shared.kubelet.memory).watching() as observer,
        scheduling(shared.api, policy="pack"),
        binding(shared),
    ):
        third = {"memory": MIB // 4} if label else {"fraction": "0.25"}
        for name, namespace, options in (
            ("a", "default", {"fraction": "0.5"}),
            ("b", OTHER, {"fraction": "0.25"}),
            ("c", "default", third),
        ):
            await shared.pod(name, namespace, **options)
            (pod,) = await shared.running(name, namespace=namespace)
            (gpu,) = shared_gpus_of(pod.metadata)
            assert gpu.device in slots
            assert gpu.uuid == shared.kubelet.seen[pod.uid][names.VISIBLE_DEVICES]
        await shared.one_reservation(sharers=3)
        await shared.check()
        assert observer.bound == 3
        for name, namespace in (("a", "default"), ("b", OTHER), ("c", "default")):
            await shared.delete(name, namespace)
        await nothing_left(shared)


async def test_g10_a_fraction_that_ran_before_the_label_came_counts_by_what_it_says(shared: SharingCluster) -> None:
    await shared.node(gpus=1, reported=False)
    await switch_on(shared)
    async with scheduling(shared.api), binding(shared):
        await shared.pod("a", fraction="0.5")
        await shared.running("a")
        labels = {"metadata": {"labels": {names.GPU_MEMORY_LABEL: str(MIB)}}}
        await shared.client.patch(kinds.NODES, "n1", labels)
        await shared.pod("b", memory=MIB // 2 + 1)
        assert f"needs {MIB // 2 + 1} MiB" in await shared.api.waits("b")
        await shared.pod("c", memory=MIB // 2)
        await shared.running("c")
        await shared.one_reservation(sharers=2)
        for name in "abc":
            await shared.delete(name)
        await nothing_left(shared)
