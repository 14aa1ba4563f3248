"""Fleets of equal nodes with 8 GPUs each, and pods for them, made up for measurements."""

from __future__ import annotations

from collections.abc import Iterable

from apportion.apis import names
from apportion.apis.identities import DeviceUUID, NodeName, PodUID, QueueName
from apportion.apis.request import Request
from apportion.core.catalog import Catalog
from apportion.core.fleet import Fleet, GpuFacts, NodeFacts
from apportion.core.node import CPU, MEMORY, PODS
from apportion.core.queues.tree import Queue, QueueTree

GPUS = 8
MODEL = "NVIDIA A100-SXM4-80GB"


def fleet(nodes: int, queues: Iterable[Queue]) -> Fleet:
    catalog = Catalog.shipped()
    model = catalog.find(MODEL)
    assert model is not None
    made = Fleet(catalog)
    made.accounts.set_tree(QueueTree(queues))
    offered = {CPU: 128_000, MEMORY: 1 << 40, PODS: 110, names.NVIDIA_GPU: GPUS}
    for number in range(nodes):
        name = NodeName(f"node-{number:05}")
        made.set_node(NodeFacts(name, {names.HOSTNAME_LABEL: name}, allocatable=offered))
        gpus = [GpuFacts(DeviceUUID(f"{name}/{index}"), model, mig=False) for index in range(GPUS)]
        made.set_gpus(name, gpus, ready=True)
    return made


def pod(name: str, queue: QueueName, gpus: int, group: str | None = None) -> Request:
    """With a controller of its own; pods are as old as their names say."""
    return Request(
        PodUID(name),
        "default",
        name,
        scheduler_name=names.DAS_SCHEDULER,
        queue=queue,
        group=group,
        whole_gpus=gpus,
        resources={CPU: 1000, MEMORY: 1 << 30, names.NVIDIA_GPU: gpus},
        created=f"2026-01-01T00:00:{name}",
        owner=f"job-{name}",
    )
