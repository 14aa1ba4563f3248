"""What NVML says about profiles: of GPU instances on a device, of compute instances in a GPU instance."""

from __future__ import annotations

import math
from collections.abc import Callable
from ctypes import byref, c_uint
from dataclasses import dataclass
from typing import Any

import pynvml

from apportion.node.hardware.partitioner import ProfileFacts

_ABSENT = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument)
MOST_PLACES = 64
MIB_PER_GIB = 1024
EIGHTHS = 8
# For drivers that do not report the name of a profile: the suffix that its enum value means.
_SUFFIXES = {
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1: "+me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1: "+me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_4_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_NO_ME: "-me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_NO_ME: "-me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: "+me.all",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: "+me.all",
}
# The enum value of compute instances, by how many compute slices they have.
_CI_INDEX = {
    1: pynvml.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE,
    2: pynvml.NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE,
    3: pynvml.NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE,
    4: pynvml.NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE,
    6: pynvml.NVML_COMPUTE_INSTANCE_PROFILE_6_SLICE,
    7: pynvml.NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE,
    8: pynvml.NVML_COMPUTE_INSTANCE_PROFILE_8_SLICE,
}
_ONCE = ("+me", "+me.all")  # one set of media engines per GPU


@dataclass(frozen=True)
class GiProfile:
    """A profile of GPU instances: its id on this device, its enum value, and how many compute slices it has."""

    id: int
    index: int
    name: str
    compute: int
    starts: tuple[int, ...]
    size: int

    def facts(self) -> ProfileFacts:
        # NVML's own instance count is wrong for some models: places say how many there can be.
        return ProfileFacts(
            self.name,
            self.size,
            self.starts,
            limit=1 if self.name.endswith(_ONCE) else 0,
            gi_index=self.index,
            ci_index=_CI_INDEX.get(self.compute),
        )


def of_device(device: Any) -> list[GiProfile]:
    found: dict[str, GiProfile] = {}
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info, name = _info(device, number)
            places = _placement(device, info.id)
        except _ABSENT:
            continue
        if places:
            starts = tuple(sorted(place.start for place in places))
            found.setdefault(name, GiProfile(info.id, number, name, info.sliceCount, starts, places[0].size))
    return list(found.values())


def whole_instance(instance: Any, profile: GiProfile) -> int:
    """The id of the compute profile that fills a GPU instance."""
    for info in _compute_profiles(instance):
        if info.sliceCount == profile.compute:
            return int(info.id)
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def compute_instances(instance: Any, profile: GiProfile) -> list[Any]:
    """All compute instances of a GPU instance; ours are one each, others may have cut theirs up."""
    return [
        compute
        for info in _compute_profiles(instance)
        for compute in listed(
            pynvml.nvmlGpuInstanceGetComputeInstances,
            instance,
            info.id,
            pynvml.c_nvmlComputeInstance_t,
            max(info.instanceCount, profile.compute),
        )
    ]


def listed(function: Callable[..., Any], owner: Any, profile_id: int, kind: Any, most: int) -> list[Any]:
    """The instances that a listing call writes into an array of ours."""
    array, count = (kind * most)(), c_uint(most)
    function(owner, profile_id, array, byref(count))
    return [array[index] for index in range(count.value)]


def text(value: str | bytes) -> str:
    """The binding gives texts as one or the other, depending on the call."""
    return value.decode() if isinstance(value, bytes) else value


def _info(device: Any, number: int) -> tuple[Any, str]:
    try:
        info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(device, number, version=2)
        return info, text(info.name).removeprefix("MIG ")
    except pynvml.NVMLError_FunctionNotFound:
        info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(device, number, version=1)
        return info, _computed_name(device, number, info)


def _computed_name(device: Any, number: int, info: Any) -> str:
    """As NVIDIA's tools compute it: memory in eighths of the whole, rounded up."""
    total = pynvml.nvmlDeviceGetMemoryInfo(device).total / (1 << 20)
    eighths = math.ceil(EIGHTHS * info.memorySizeMB / total)
    gigabytes = round(eighths / EIGHTHS * math.ceil(total / MIB_PER_GIB))
    return f"{info.sliceCount}g.{gigabytes}gb{_SUFFIXES.get(number, '')}"


def _placement(device: Any, profile_id: int) -> list[Any]:
    count = c_uint(0)
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile_id, None, byref(count))
    size = min(count.value, MOST_PLACES)
    array = (pynvml.c_nvmlGpuInstancePlacement_t * size)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile_id, array, byref(count))
    return [array[index] for index in range(min(count.value, size))]


def _compute_profiles(instance: Any) -> list[Any]:
    found: list[Any] = []
    for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            info = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                instance, number, pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, version=1
            )
        except _ABSENT:
            continue
        found.append(info)
    return found
