"""The GPU simulator: logs the emulated GPUs of all nodes, and labels the nodes so that agents run there.

The agents emulate the GPUs on their nodes. This process logs them for the whole cluster, and labels nodes with the
annotation `apportion.io/emulated-gpus`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from apportion.apis import kinds, names, profiles, quantity
from apportion.apis.nodes import Node
from apportion.cluster import probes
from apportion.cluster.client import Client
from apportion.cluster.errors import ClusterError
from apportion.cluster.informer import Informer
from apportion.cluster.workqueue import WorkQueue

log = logging.getLogger(__name__)


async def run(listen: str) -> None:
    """Watch the nodes until cancelled."""
    async with Client.connect() as client:
        await Simulator(client).run(listen)


class Simulator:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._nodes = Informer(client, kinds.NODES, into=Node)
        self._work: WorkQueue[str] = WorkQueue("nodes")
        self._logged: dict[str, str] = {}

    async def run(self, listen: str) -> None:
        self._nodes.on_change(lambda old, new: self._work.add((new or old or Node()).metadata.name))
        ready = {"nodes": lambda: self._nodes.has_synced or "waiting for nodes"}
        log.info("emulating NVIDIA GPUs: product, memory and MIG layout are read from node annotations")
        async with probes.serve(listen, ready=ready), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.run())
            await self._nodes.synced()
            tasks.create_task(self._work.run(self._reconcile))

    async def _reconcile(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None:
            if self._logged.pop(name, None):
                log.info("node %s was deleted", name)
            return
        if names.EMULATED_GPUS not in node.metadata.annotations and name not in self._logged:
            return
        await self._label(node)
        text = describe(node)
        if text != self._logged.get(name):
            self._logged[name] = text
            log.info("node %s: %s", name, text)

    async def _label(self, node: Node) -> None:
        if node.metadata.labels.get(names.MIG_CAPABLE_LABEL):
            return
        labels = {names.MIG_CAPABLE_LABEL: "true", names.GPU_PRESENT_LABEL: "true"}
        try:
            await self._client.patch(kinds.NODES, node.metadata.name, {"metadata": {"labels": labels}})
        except ClusterError as error:
            log.warning("cannot label node %s: %s", node.metadata.name, error)


def describe(node: Node) -> str:
    """`4 x NVIDIA-H200 71680 MiB; mig-1g.10gb 28, gpu 0; layout success`."""
    parts = [", ".join(_gpus(node)) or "no GPUs"]
    devices = {
        resource.removeprefix("nvidia.com/"): quantity.whole(amount)
        for resource, amount in node.status.capacity.items()
        if resource == names.NVIDIA_GPU or profiles.nvidia_profile(resource)
    }
    if devices:
        parts.append(", ".join(f"{resource} {amount}" for resource, amount in sorted(devices.items(), reverse=True)))
    state = node.metadata.labels.get(names.MIG_CONFIG_STATE_LABEL)
    if state:
        parts.append(f"layout {state}")
    return "; ".join(parts)


def _gpus(node: Node) -> list[str]:
    try:
        entries: list[dict[str, Any]] = msgspec.json.decode(
            node.metadata.annotations.get(names.EMULATED_GPUS, "[]"), type=list[dict[str, Any]]
        )
    except msgspec.DecodeError:
        return [f"{names.EMULATED_GPUS} is invalid"]
    return [
        " ".join(
            str(part)
            for part in (f"{entry.get('count', 2)} x", entry.get("product", "A100"), *_memory(entry.get("memoryMiB")))
        )
        for entry in entries
    ]


def _memory(mib: int | None) -> tuple[str, ...]:
    return (f"{mib} MiB",) if mib else ()
