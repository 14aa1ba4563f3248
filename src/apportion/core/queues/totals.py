"""What the queues share: everything the nodes have, without what pods of other schedulers hold."""

from __future__ import annotations

from apportion.core import gpu_usage
from apportion.core.fleet import Fleet
from apportion.core.node import CPU, MEMORY, NodeState
from apportion.core.queues.accounts import FOREIGN
from apportion.core.queues.amounts import Amounts

MILLI = 1000


def total(fleet: Fleet) -> Amounts:
    gpu = cpu = memory = 0
    for node in fleet:
        assert node.facts is not None
        allocatable = node.facts.allocatable
        gpu += _milli(fleet, node)
        cpu += allocatable.get(CPU, 0)
        memory += allocatable.get(MEMORY, 0)
    foreign = fleet.accounts.used(FOREIGN)
    return Amounts(max(0, gpu - foreign.gpu), max(0, cpu - foreign.cpu), max(0, memory - foreign.memory))


def _milli(fleet: Fleet, node: NodeState) -> int:
    """Where nobody reports GPUs, what the kubelet offers: whole ones, and static MIG devices."""
    if node.gpus:
        return MILLI * sum(gpu.facts.healthy for gpu in node.gpus.values())
    assert node.facts is not None
    return MILLI * node.gpu_count + gpu_usage.of_static_devices(fleet.catalog, node.facts.allocatable)
