"""NVML's error codes in the words of the partitioner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pynvml

from apportion.node.hardware.partitioner import Busy, GpuLost, PartitionError, PlacementTaken, Unavailable

RELOADED = (pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
_MEANINGS: dict[int, tuple[type[PartitionError], str]] = {
    pynvml.NVML_ERROR_IN_USE: (Busy, "a process still uses it"),
    pynvml.NVML_ERROR_GPU_IS_LOST: (GpuLost, "the GPU is lost: it needs a reset or a reboot"),
    pynvml.NVML_ERROR_RESET_REQUIRED: (GpuLost, "the GPU needs a reset"),
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: (PlacementTaken, "it overlaps another slice"),
    pynvml.NVML_ERROR_NOT_FOUND: (GpuLost, "the GPU is not on this node"),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        Unavailable,
        "no permission to change slices: the agent must run privileged",
    ),
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        Unavailable,
        "libnvidia-ml.so.1 is missing: the NVIDIA driver is not installed",
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (Unavailable, "the NVIDIA kernel driver is not loaded"),
    pynvml.NVML_ERROR_UNINITIALIZED: (Unavailable, "the NVIDIA driver was reloaded"),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        Unavailable,
        "libnvidia-ml.so.1 and the kernel driver have different versions",
    ),
}


@contextmanager
def translated(reloaded: Callable[[], None]) -> Iterator[None]:
    """Raise the errors of a partitioner; call `reloaded` if the library has to be initialised again."""
    try:
        yield
    except pynvml.NVMLError as error:
        if error.value in RELOADED:
            reloaded()
        kind, text = _MEANINGS.get(error.value, (PartitionError, "unexpected error"))
        raise kind(f"NVML: {error}: {text}") from error
