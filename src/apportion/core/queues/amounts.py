"""Amounts of the three resources that queues share: GPUs and CPU in milli, memory in bytes."""

from __future__ import annotations

from typing import NamedTuple


class Amounts(NamedTuple):
    """What a pod, a group or a queue asks for or holds."""

    gpu: int = 0
    cpu: int = 0
    memory: int = 0

    def plus(self, other: Amounts) -> Amounts:
        return Amounts(self.gpu + other.gpu, self.cpu + other.cpu, self.memory + other.memory)

    def minus(self, other: Amounts) -> Amounts:
        return Amounts(self.gpu - other.gpu, self.cpu - other.cpu, self.memory - other.memory)


NOTHING = Amounts()
RESOURCES = Amounts._fields
