"""Each pod gets the slices of its own claims, whatever ids the kubelet hands out."""

from __future__ import annotations

import asyncio
from typing import Any

from apportion.apis import profiles
from tests.node.agent_node import AgentNode


async def test_s07_two_pods_with_one_profile_never_swap_slices(node: AgentNode) -> None:
    for round_ in range(20):
        pods = [await node.scheduled(f"twin-{round_}-{side}", "3g.20gb", 4 * side) for side in (0, 1)]
        for pod in pods:
            await node.admit(pod)
        environments = await asyncio.gather(*(node.start(pod) for pod in pods))
        for pod, environment in zip(pods, environments, strict=True):
            assert environment["NVIDIA_VISIBLE_DEVICES"] == await uuid_of(node, pod)
        await node.delete(pods[round_ % 2])
        survivor = pods[1 - round_ % 2]
        await node.eventually(lambda: left(node, 1), "one claim is left")
        assert await node.slices() == [await uuid_of(node, survivor)]
        await node.delete(survivor)
        await node.eventually(node.clean, "both are gone")


async def test_s07_a_stateful_sets_pod_that_comes_back_gets_its_own_slice(node: AgentNode) -> None:
    """Old name, ids that were freed a moment ago, and an agent that still cleans up after the old pod."""
    await node.annotate_node(**{"apportion.io__emulated-gpus": '[{"product": "NVIDIA A100-PCIE-40GB", "count": 2}]'})
    resource = profiles.slice_resource("7g.40gb")
    before = await node.scheduled("web-0", "7g.40gb", gpu=0)
    old = await node.run(before)
    for _ in range(5):
        await node.end(before)
        await node.vanish(before)
        after = await node.scheduled("web-0", "7g.40gb", gpu=1)  # the old claim is still there
        # The kubelet knows two devices; force it to hand out the one just freed.
        node.kubelet.ledger.keep_only(set())
        free = node.kubelet.ledger._healthy[resource]
        freed = next(iter(free))
        hidden = free - {freed}
        free -= hidden
        await node.admit(after)
        environment = await node.start(after)
        free |= hidden
        assert environment["NVIDIA_VISIBLE_DEVICES"] == await uuid_of(node, after) != old["NVIDIA_VISIBLE_DEVICES"]
        await node.eventually(lambda: left(node, 1), "the old claim is gone")
        assert await node.slices() == [environment["NVIDIA_VISIBLE_DEVICES"]]
        assert len(node.cdi_files()) == 1
        assert await node.start(after) == environment
        await node.delete(after)
        await node.eventually(node.clean, "all is gone")
        before = await node.scheduled("web-0", "7g.40gb", gpu=0)
        old = await node.run(before)


async def test_s07_fourteen_pods_started_at_once(node: AgentNode) -> None:
    pods = [await node.scheduled(f"p-{n}", "1g.5gb", n % 7, gpu=n // 7) for n in range(14)]
    for pod in pods:
        await node.admit(pod)
    environments = await asyncio.gather(*(node.start(pod) for pod in pods))
    seen = {environment["NVIDIA_VISIBLE_DEVICES"] for environment in environments}
    assert len(seen) == 14
    for pod, environment in zip(pods, environments, strict=True):
        assert environment["NVIDIA_VISIBLE_DEVICES"] == await uuid_of(node, pod)
    await asyncio.gather(*(node.delete(pod) for pod in pods))
    await node.eventually(node.clean, "all are gone")


async def uuid_of(node: AgentNode, pod: dict[str, Any]) -> str:
    return (await node.get(f"{pod['metadata']['uid']}-main-0")).status.mig_uuid


async def left(node: AgentNode, count: int) -> bool:
    return len(await node.claims()) == count
