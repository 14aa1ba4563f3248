"""How the memory of one shared GPU is divided among the pods that share it.

A fraction is a fraction of the memory, rounded down to whole MiB. The memory of a GPU is not always known; then 1000
units stand for the whole GPU, and only fractions can be divided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from apportion.apis.identities import PodUID
from apportion.apis.shared_gpus import Sharer
from apportion.apis.shares import MILLI


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of a GPU in MiB, or 1000 units if nobody says how much it has."""

    mib: int
    known: bool = True

    @property
    def unit(self) -> str:
        return "MiB" if self.known else "thousandths of the GPU"


UNKNOWN = DeviceMemory(MILLI, known=False)


@dataclass(frozen=True)
class Refused:
    """Why a pod cannot have its share: what the others have, what it asks for, and the memory of the GPU."""

    used: int
    asked: int
    memory: DeviceMemory

    def __str__(self) -> str:
        if not self.memory.known and self.used == self.asked == 0:
            return "the memory of the GPU is unknown, so only fractions of it can be shared"
        unit = self.memory.unit
        return f"the share takes {self.asked} {unit}, and {self.used} of {self.memory.mib} {unit} are in use"


def divide(memory: DeviceMemory, sharers: Mapping[PodUID, Sharer]) -> dict[PodUID, int | Refused]:
    """What each of the sharers gets, in the order in which they are given: whoever does not fit gets nothing."""
    result: dict[PodUID, int | Refused] = {}
    used = 0
    for uid, sharer in sharers.items():
        if sharer.mib is not None and not memory.known:
            result[uid] = Refused(0, 0, memory)
            continue
        asked = sharer.mib_on(memory.mib)
        if used + asked > memory.mib:
            result[uid] = Refused(used, asked, memory)
            continue
        result[uid] = asked
        used += asked
    return result


def joined(memory: DeviceMemory, sharers: Mapping[PodUID, Sharer], uid: PodUID, sharer: Sharer) -> int | Refused:
    """What a pod gets beside all the others, who are there already. They are never reduced for it."""
    others = {other: each for other, each in sharers.items() if other != uid}
    if sharer.mib is not None and not memory.known:
        return Refused(0, 0, memory)
    used = sum(each.mib_on(memory.mib) for each in others.values())
    asked = sharer.mib_on(memory.mib)
    return asked if used + asked <= memory.mib else Refused(used, asked, memory)


def milli(memory: DeviceMemory, sharer: Sharer) -> int:
    """The share in thousandths of the GPU, rounded up as queues are charged: no share is 0."""
    if sharer.milli is not None:
        return sharer.milli
    return min(MILLI, -(-sharer.mib_on(memory.mib) * MILLI // memory.mib))
