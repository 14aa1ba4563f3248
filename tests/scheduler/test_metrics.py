"""Metrics: waiting pods by the layer that blocks them, queues, and shared GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import REGISTRY

from apportion.apis import kinds, names
from apportion.core.queues.tree import QueueTree
from apportion.core.reasons import Layer
from apportion.scheduler import gpu_metrics, queue_metrics, waiting_metrics
from apportion.scheduler.gpu_metrics import GpuMetrics
from tests.builders import groups
from tests.core.evictions.worlds import World, queue
from tests.scheduler.cluster import ApiCluster, scheduling, until
from tests.view.sharing.sharing_world import SharingWorld

GPU = names.NVIDIA_GPU


def counted() -> dict[str, int]:
    found = {layer: int(waiting_metrics.WAITING.labels(layer)._value.get()) for layer in (*Layer, "none")}
    return {str(layer): count for layer, count in found.items() if count}


async def test_r03_waiting_pods_are_counted_by_layer(cluster: ApiCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_metrics, "PASS_SECONDS", 0.05)
    await cluster.node("n1", gpus=1, mig=0, resources={GPU: "1"})
    limited = {"gpu": {"quota": 8, "limit": 0}}
    for made in (groups.queue("open", gpus=8), groups.queue("shut", resources=limited)):
        await cluster.client.create(kinds.QUEUES, made)
    for name in ("small", "large"):
        await cluster.client.create(kinds.POD_GROUPS, groups.pod_group(name, 2))

    async def pod(name: str, queue: str = "open", **options: Any) -> None:
        await cluster.pod(name, limits={GPU: "1"}, labels={names.QUEUE_LABEL: queue}, **options)

    async def until_counted(**layers: int) -> None:
        expected = {name.replace("_", " "): count for name, count in layers.items()}

        async def reached() -> bool:
            return counted() == expected

        await until(reached)

    async with scheduling(cluster):
        await pod("holds")
        await cluster.bound("holds")
        await pod("gated", gates=["example.com/wait"])
        for number in range(2):
            await pod(f"stopped-{number}", "shut")
        await pod("alone", annotations={names.POD_GROUP: "small"})
        for number in range(2):
            await pod(f"large-{number}", annotations={names.POD_GROUP: "large"})
        await pod("elsewhere", selector={"disk": "ssd"})
        await pod("full")
        await until_counted(admission=1, queue=2, gang=3, node_filter=1, placement=1)
        await cluster.delete("stopped-0")
        await until_counted(admission=1, queue=1, gang=3, node_filter=1, placement=1)
    assert counted() == {}, "who does not lead counts nothing"


def test_r03_q12_queues_are_counted_under_the_names_of_kai_scheduler() -> None:
    world = World({"n": 4}, [queue("top", 4), queue("a", 1, parent="top")])
    world.run(world.request("runs", "a", gpus=2, cpu="500m"))
    queue_metrics.update(world.fleet.accounts, world.shares())
    of_queue = {"queue_name": "a"}
    values = {
        name: REGISTRY.get_sample_value(name, of_queue)
        for name in (
            "kai_queue_deserved_gpus",
            "kai_queue_quota_cpu_cores",
            "kai_queue_quota_memory_bytes",
            "kai_queue_allocated_gpus",
            "kai_queue_allocated_cpu_cores",
            "kai_queue_allocated_memory_bytes",
            "queue_fair_share_gpu",
            "queue_fair_share_cpu_cores",
            "queue_fair_share_memory_gb",
        )
    }
    assert list(values.values()) == [1, -1, -1, 2, 0.5, 0, 2, 0.5, 0]
    assert REGISTRY.get_sample_value("kai_queue_info", {**of_queue, "parent": "top"}) == 1
    world.fleet.accounts.set_tree(QueueTree())
    queue_metrics.update(world.fleet.accounts, {})
    assert REGISTRY.get_sample_value("kai_queue_allocated_gpus", of_queue) is None, "a queue that is gone"


def of_gpus() -> dict[tuple[str, ...], float]:
    """All series of GPUs and of shares, by name and labels except the model."""
    return {
        (sample.name.removeprefix("apportion_"), *(sample.labels[key] for key in sample.labels if key != "model")): (
            sample.value
        )
        for metric in REGISTRY.collect()
        if metric.name.startswith(("apportion_gpu_", "apportion_pod_gpu_"))
        for sample in metric.samples
    }


async def test_r03_shared_gpus_are_counted_with_what_is_free_and_who_shares_them() -> None:
    world = SharingWorld()
    world.node("n1", gpus=2, mig=1)
    pod = world.shares("a", "n1", "GPU-n1-1", mib=20480, fraction="0.5")
    reservation = world.reservation("n1", "GPU-n1-1", "GPU-n1-1")
    metrics = GpuMetrics(world.view)
    await metrics.update()
    assert of_gpus() == {
        ("gpu_shared_mib", "n1", "GPU-n1-1"): 20480,
        ("gpu_free_mib", "n1", "GPU-n1-1"): 20480,
        ("gpu_reserved", "n1", "GPU-n1-1"): 1,
        ("gpu_sharers", "n1", "GPU-n1-1"): 1,
        ("pod_gpu_share_mib", "default", "a", "n1", "GPU-n1-1"): 20480,
    }
    world.forget(pod)
    world.forget(reservation)
    await metrics.update()
    assert of_gpus() == {
        ("gpu_shared_mib", "n1", "GPU-n1-1"): 0,
        ("gpu_free_mib", "n1", "GPU-n1-1"): 40960,
        ("gpu_reserved", "n1", "GPU-n1-1"): 0,
        ("gpu_sharers", "n1", "GPU-n1-1"): 0,
    }
    world.forget_node("n1")
    await metrics.update()
    assert of_gpus() == {}, "a GPU that is gone"


async def test_r03_g10_a_gpu_without_an_agent_is_counted_by_its_slot_until_its_uuid_is_known() -> None:
    world = SharingWorld()
    world.slots("n1", 16000, gpus=1)
    world.slots("n2", None, gpus=1)
    metrics = GpuMetrics(world.view)
    await metrics.update()
    assert of_gpus()["gpu_free_mib", "n1", "n1/0"] == 16000
    assert of_gpus()["gpu_sharers", "n2", "n2/0"] == 0
    assert ("gpu_free_mib", "n2", "n2/0") not in of_gpus(), "its memory is unknown"
    world.asks(world.pod("a", memory=8000), "n1", "n1/0", mib=8000)
    world.reservation("n1", "n1/0")
    world.reservation("n1", "n1/0", "GPU-7")
    await metrics.update()
    assert of_gpus()["gpu_free_mib", "n1", "GPU-7"] == 8000
    assert ("gpu_free_mib", "n1", "n1/0") not in of_gpus()
    world.forget_node("n1")
    world.forget_node("n2")
    await metrics.update()
    assert of_gpus() == {}


async def test_r03_only_the_leader_counts_gpus(cluster: ApiCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_metrics, "PASS_SECONDS", 0.05)
    await cluster.node("n1", gpus=1, mig=0, resources={GPU: "1"})

    async def counted_gpus() -> bool:
        return len(of_gpus()) == 4

    async with scheduling(cluster):
        await until(counted_gpus)
    assert of_gpus() == {}
