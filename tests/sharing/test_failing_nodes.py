"""Nodes on which reservation pods get no GPU, or another one than planned. Rule G05."""

from __future__ import annotations

import asyncio

import pytest

from apportion.apis import kinds, names
from apportion.cluster.transport import HttpRequest, Response
from tests.binder.cluster import MIB, SharingCluster, binding
from tests.builders import pods
from tests.scheduler.cluster import scheduling, until
from tests.scheduler.cut_connections import Onwards
from tests.sharing.planes import nothing_left, switch_on


@pytest.mark.parametrize("how", ["silent", "rejecting"])
async def test_g05_pods_leave_a_node_on_which_reservation_pods_fail(shared: SharingCluster, how: str) -> None:
    await shared.node("n1")
    await shared.node("n2")
    getattr(shared.kubelet, how).add("n1")
    await switch_on(shared)
    limit = {"spec": {"binder": {"resourceReservation": {"allocationTimeout": 1}}}}
    await shared.client.patch(kinds.KAI_CONFIGS, names.KAI_CONFIG_OBJECT, limit)
    async with scheduling(shared.api), binding(shared):
        await shared.pod("a")
        await shared.pod("b", memory=100)
        found = await shared.running("a", "b")
        assert [pod.spec.node_name for pod in found] == ["n2", "n2"]
        getattr(shared.kubelet, how).clear()
        for pod in found:
            await shared.delete(pod.metadata.name)
        await nothing_left(shared)


@pytest.mark.parametrize("reported", [True, False], ids=["agent", "no-agent"])
async def test_g05_x04_the_gpu_of_a_share_under_way_is_given_to_nobody_else(
    shared: SharingCluster, *, reported: bool
) -> None:
    """The reservation pod of `a` gets the GPU that is planned for `b`, whose reservation pod does not exist yet."""
    await shared.node(reported=reported, label="" if reported else str(MIB))
    shared.kubelet.devices["n1"].reverse()
    shared.kubelet.silent.add("n1")
    await switch_on(shared)
    asked, on = asyncio.Event(), asyncio.Event()

    async def creation_waits(request: HttpRequest, onwards: Onwards) -> Response:
        if request.method == "POST" and request.path.endswith(f"{names.RESERVATION_NAMESPACE}/pods"):
            asked.set()
            await on.wait()
        return await onwards()

    wire = shared.api.wire()
    async with scheduling(shared.api), binding(shared, wire):
        await shared.pod("a", fraction="0.6")
        await until(shared.reservations)
        wire.fault = creation_waits
        await shared.pod("b", fraction="0.6")
        await asked.wait()
        shared.kubelet.silent.clear()
        shared.kubelet.wake()
        await shared.running("a")
        whole = pods.our_pod("c", limits={names.NVIDIA_GPU: "1"})
        await shared.client.create(kinds.PODS, whole, namespace="default")
        assert "2 of 2 in use" in await shared.api.waits("c")
        on.set()
        await shared.running("b")
        await shared.delete("b")
        await shared.api.bound("c")
