"""Which processes use a GPU, and how much of its memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pynvml

from apportion.apis.identities import DeviceUUID
from apportion.node.hardware.partitioner import Process

NO_INSTANCE = 0xFFFFFFFF
BYTES_PER_MIB = 1 << 20


def of_device(device: Any, uuid: DeviceUUID, slices: Mapping[int, DeviceUUID]) -> list[Process]:
    """Processes of a GPU; those in a slice count for that slice, known by the id of its GPU instance."""
    found = []
    for entry in pynvml.nvmlDeviceGetComputeRunningProcesses(device):
        inside = slices.get(entry.gpuInstanceId, uuid) if entry.gpuInstanceId != NO_INSTANCE else uuid
        used = entry.usedGpuMemory  # None if the driver may not report it
        found.append(Process(entry.pid, inside, None if used is None else used // BYTES_PER_MIB))
    return found
