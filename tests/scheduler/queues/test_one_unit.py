"""One queue mixes whole GPUs, slices and static MIG devices: all count in one unit, as does what others hold."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.apis import kinds, names
from tests.builders import nodes
from tests.scheduler.cluster import ApiCluster, scheduling, until
from tests.scheduler.queues.workloads import clear, gpu_node, queue

GPU = names.NVIDIA_GPU
STATIC = f"{names.NVIDIA_MIG_PREFIX}1g.5gb"
QUEUE = {names.QUEUE_LABEL: "q"}
FOREIGN = "default-scheduler"


@pytest.fixture
async def wiped(each_cluster: ApiCluster) -> Any:
    yield each_cluster
    await clear(each_cluster)


async def three_kinds_of_nodes(cluster: ApiCluster) -> None:
    """Three whole GPUs, one GPU in MIG mode, and one that NVIDIA's device plugin has divided: 4875 thousandths in all,
    because an eighth of the last one is in no slice."""
    await gpu_node(cluster, "whole", 3)
    await cluster.node("dynamic", gpus=1)
    static = nodes.node("static", resources={STATIC: 7})
    await cluster.client.create(kinds.NODES, {"metadata": static["metadata"]})
    await cluster.client.patch(kinds.NODES, "static", {"status": static["status"]}, subresource="status")


async def status_is(cluster: ApiCluster, **wanted: str) -> None:
    """The Queue says this about GPUs."""

    async def found() -> bool:
        status = (await cluster.client.get(kinds.QUEUES, "q")).get("status", {})
        said = {field: status.get(field, {}).get(GPU) for field in wanted}
        return said == wanted

    try:
        await until(found, within=20)
    except AssertionError:
        status = (await cluster.client.get(kinds.QUEUES, "q")).get("status", {})
        raise AssertionError(f"not {wanted}: {status}") from None


async def held_by_others(cluster: ApiCluster, name: str, node: str, **limits: int) -> None:
    """A pod that another scheduler has bound."""
    await cluster.pod(name, limits={key: str(count) for key, count in limits.items()}, node=node, scheduler=FOREIGN)
    await cluster.set_phase(name, "Running")


async def test_q08_a_queue_mixes_whole_gpus_slices_and_static_devices_in_one_unit(wiped: ApiCluster) -> None:
    cluster = wiped
    await three_kinds_of_nodes(cluster)
    await queue(cluster, "q", quota=0)
    async with scheduling(cluster):
        await cluster.pod("whole", gpus=1, labels=QUEUE)
        await cluster.pod("sliced", slices={"3g.20gb": 1, "1g.5gb": 1}, labels=QUEUE)
        await cluster.pod("static", mig={"1g.5gb": 2}, labels=QUEUE)
        assert await cluster.bound("whole", "sliced", "static") == {
            "whole": "whole",
            "sliced": "dynamic",
            "static": "static",
        }
        used = 1000 + (500 + 125) + 2 * 125
        await status_is(cluster, allocated=f"{used}m", requested=f"{used}m", fairShare=f"{used}m")

        await cluster.pod("greedy", gpus=8, labels=QUEUE)  # so that the queue is entitled to everything
        await status_is(cluster, allocated=f"{used}m", requested=f"{used + 8000}m", fairShare="4875m")
        await held_by_others(cluster, "other", "whole", **{GPU: 1})
        await status_is(cluster, allocated=f"{used}m", fairShare="3875m")
        await held_by_others(cluster, "other-static", "static", **{STATIC: 3})
        await status_is(cluster, allocated=f"{used}m", fairShare=f"{3875 - 375}m")
        await cluster.set_phase("other", "Succeeded")
        await status_is(cluster, fairShare=f"{4875 - 375}m")

        await cluster.delete("greedy")
        await cluster.client.patch(kinds.QUEUES, "q", {"spec": {"resources": {"gpu": {"quota": 0, "limit": 2}}}})
        await cluster.pod("more", gpus=1, labels=QUEUE)
        assert "queue q would exceed its limit: 1.875 of 2 GPUs in use, 1 more requested" in await cluster.waits("more")
        await cluster.pod("small", slices={"1g.5gb": 1}, labels=QUEUE)
        await cluster.bound("small")
        await status_is(cluster, allocated="2")
