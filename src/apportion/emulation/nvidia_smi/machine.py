"""What `nvidia-smi` can see: GPUs and the MIG instances on them."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

DRIVER_VERSION, CUDA_VERSION = "580.65.06", "13.0"


class Instance(msgspec.Struct, frozen=True):
    """One MIG device. `gi` is its GPU instance id; each has one compute instance, with id 0."""

    profile: str
    start: int
    size: int
    uuid: str
    memory_mib: int
    gi: int = 0
    multiprocessors: int = 0
    used_mib: int = 0


class VisibleGpu(msgspec.Struct, frozen=True):
    """One GPU."""

    index: int
    uuid: str
    name: str
    memory_mib: int
    mig: bool = False
    used_mib: int = 0
    instances: tuple[Instance, ...] = ()


class Machine(msgspec.Struct, frozen=True):
    boards: tuple[VisibleGpu, ...] = ()
    driver: str = DRIVER_VERSION
    cuda: str = CUDA_VERSION

    def visible(self, uuids: Collection[str]) -> Machine:
        """What a container sees that was given these devices: they, and the GPUs that carry them, counted anew.

        Whatever it uses there it uses itself: at its start that is nothing.
        """
        boards: list[VisibleGpu] = []
        for board in self.boards:
            instances = tuple(
                msgspec.structs.replace(each, used_mib=0) for each in board.instances if each.uuid in uuids
            )
            if instances or board.uuid in uuids:
                seen = msgspec.structs.replace(board, index=len(boards), instances=instances, used_mib=0)
                boards.append(seen)
        return msgspec.structs.replace(self, boards=tuple(boards))


def instance_id(units: int, start: int, size: int) -> int:
    """Halves before quarters before eighths, from the left: 0 is the whole GPU, 1 and 2 its halves, and so on."""
    return units // size - 1 + start // size


def encode(machine: Machine) -> str:
    return msgspec.json.encode(machine).decode()


def decode(text: str | bytes) -> Machine:
    """Raises msgspec.DecodeError for anything else."""
    return msgspec.json.decode(text, type=Machine)
