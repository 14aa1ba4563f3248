"""The NodeAccelerator names the pods that hold GPUs and static slices, as the kubelet recorded them. Rule S09."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator

import pytest

from apportion.apis import kinds, migconfig, names
from apportion.cluster.transport import HttpRequest, Response, Transport
from tests.node.agent_node import JSON, NODE, AgentNode, agent_node

GPU, SMALL = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"


@pytest.fixture
async def node() -> AsyncIterator[AgentNode]:
    """Eight whole GPUs, then one with two static slices, then one that is sliced on demand."""
    a100 = {"product": "NVIDIA A100-PCIE-40GB"}
    gpus = [a100 | {"count": 8, "mig": False}, a100 | {"count": 2, "mig": True}]
    layout = {8: (("1g.5gb", 0, 1), ("1g.5gb", 1, 1))}
    annotations = {names.EMULATED_GPUS: json.dumps(gpus), names.MIG_CONFIG: migconfig.render(layout)}
    async with agent_node(annotations=annotations) as place:
        await place.start_agent()
        await place.eventually(lambda: place.kubelet.totals().get(GPU) == (8, 8), "the kubelet has the GPUs")
        await place.eventually(lambda: place.kubelet.totals().get(SMALL) == (2, 2), "the kubelet has the slices")
        yield place


async def running(node: AgentNode, name: str, resource: str, count: int = 1, namespace: str = "default") -> JSON:
    pod = await node.pod(name, {resource: count}, namespace=namespace)
    await node.bind(pod)
    await node.run(pod)
    return pod


async def holders(node: AgentNode) -> list[tuple[str, str]]:
    found = (await node.accelerator()).status.gpus
    return sorted((holder.pod_uid, holder.kind) for gpu in found for holder in gpu.holders)


async def becomes(node: AgentNode, *wanted: tuple[JSON, str]) -> None:
    listed = sorted((pod["metadata"]["uid"], kind) for pod, kind in wanted)

    async def there() -> bool:
        return await holders(node) == listed

    await node.eventually(there, f"the holders are {listed}")


async def test_s09_a_whole_gpu_names_its_pod_until_the_pod_has_ended(node: AgentNode) -> None:
    await becomes(node)
    pod = await running(node, "a", GPU, 2)
    await becomes(node, (pod, "whole"), (pod, "whole"))
    held = [gpu for gpu in (await node.accelerator()).status.gpus if gpu.holders]
    environment = await node.start(pod)
    assert {gpu.uuid for gpu in held} == set(environment["NVIDIA_VISIBLE_DEVICES"].split(","))
    await node.delete(pod)
    await becomes(node)


async def test_s09_each_static_slice_names_its_pod(node: AgentNode) -> None:
    first, second = await running(node, "a", SMALL), await running(node, "b", SMALL)
    await becomes(node, (first, "static"), (second, "static"))
    (gpu,) = [gpu for gpu in (await node.accelerator()).status.gpus if gpu.fixed]
    named = {piece.uuid: piece.pod_uid for piece in gpu.fixed}
    for pod in (first, second):
        environment = await node.start(pod)
        assert named[environment["NVIDIA_VISIBLE_DEVICES"]] == pod["metadata"]["uid"]
    await node.report(second, "Succeeded")
    await node.end(second)
    await becomes(node, (first, "static"))


async def test_s09_a_pod_with_two_static_slices_of_a_gpu_is_listed_once(node: AgentNode) -> None:
    pod = await running(node, "a", SMALL, 2)
    await becomes(node, (pod, "static"))
    (gpu,) = [gpu for gpu in (await node.accelerator()).status.gpus if gpu.fixed]
    assert [piece.pod_uid for piece in gpu.fixed] == [pod["metadata"]["uid"]] * 2


async def test_s09_a_reservation_is_told_from_other_pods(node: AgentNode) -> None:
    space = names.RESERVATION_NAMESPACE
    await node.client.create(kinds.NAMESPACES, {"metadata": {"name": space}})
    await node.client.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace=space)
    pod = await running(node, "gpu-reservation-x", GPU, namespace=names.RESERVATION_NAMESPACE)
    other = await running(node, "a", GPU)
    await becomes(node, (pod, "reservation"), (other, "whole"))


async def test_s09_a_pod_deleted_by_force_holds_its_gpu_while_it_runs(node: AgentNode) -> None:
    pod = await running(node, "a", GPU)
    await becomes(node, (pod, "whole"))
    await node.vanish(pod)
    await node.annotate_node(touched="yes")
    await becomes(node, (pod, "whole"))
    await node.end(pod)
    await becomes(node)


async def test_s09_holders_survive_a_restart_of_the_agent(node: AgentNode) -> None:
    pod = await running(node, "a", GPU)
    await node.restart_agent()
    await becomes(node, (pod, "whole"))


async def test_s09_many_pods_at_once_cost_few_writes(node: AgentNode) -> None:
    writes = Writes(node.agent_transport())
    node.agent_transport = lambda: writes  # type: ignore[method-assign]
    node.settings = dataclasses.replace(node.settings, settle_seconds=1.0)
    await node.restart_agent()
    before = writes.count
    pods = [await running(node, f"p{number}", GPU) for number in range(8)]
    await becomes(node, *((pod, "whole") for pod in pods))
    assert writes.count - before <= 4


class Writes:
    """Counts what an agent writes to its NodeAccelerator."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.count = 0

    async def send(self, request: HttpRequest, *, stream: bool = False, timeout: float | None = None) -> Response:  # noqa: ASYNC109
        self.count += request.method == "PATCH" and f"nodeaccelerators/{NODE}" in request.path
        return await self._inner.send(request, stream=stream, timeout=timeout)

    async def close(self) -> None:
        await self._inner.close()
