"""What the queues share: everything the nodes have, without what pods of other schedulers hold."""

from __future__ import annotations

from apportion.core.fleet import Fleet
from apportion.core.node import CPU, MEMORY
from apportion.core.queues.accounts import FOREIGN
from apportion.core.queues.amounts import Amounts

MILLI = 1000


def total(fleet: Fleet) -> Amounts:
    gpus = cpu = memory = 0
    for node in fleet:
        assert node.facts is not None
        allocatable = node.facts.allocatable
        if node.gpus:
            gpus += sum(gpu.facts.healthy for gpu in node.gpus.values())
        else:
            gpus += node.gpu_count
        cpu += allocatable.get(CPU, 0)
        memory += allocatable.get(MEMORY, 0)
    foreign = fleet.accounts.used(FOREIGN)
    return Amounts(max(0, MILLI * gpus - foreign.gpu), max(0, cpu - foreign.cpu), max(0, memory - foreign.memory))
