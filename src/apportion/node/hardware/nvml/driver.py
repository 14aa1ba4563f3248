"""NVIDIA GPUs through NVML: slices are GPU instances with one compute instance that fills them.

Three number spaces meet here and never mix: the enum with which profiles are asked for, the id that such a
profile has on this GPU (only ids go into calls that create or list), and the same two again for compute
instances. A GPU instance without its compute instance is incomplete: the process that created it was killed in between.

The library blocks, some calls for seconds, so it is called in threads.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from apportion.apis.identities import DeviceUUID
from apportion.apis.placements import SlicePlacement
from apportion.node.container import environment
from apportion.node.hardware.nvml import device_nodes as nvml_nodes
from apportion.node.hardware.nvml import processes as nvml_processes
from apportion.node.hardware.nvml import profiles
from apportion.node.hardware.nvml.errors import RELOADED, translated
from apportion.node.hardware.nvml.health import HealthWatch
from apportion.node.hardware.nvml.profiles import GiProfile, text
from apportion.node.hardware.partitioner import Busy, Gpu, GpuUser, PlacementTaken, Process, Refused, Slice, Unavailable

T = TypeVar("T")
THREADS = 4
ANSWER_SECONDS = 20.0  # a driver that hangs must not hang the agent; making and destroying may take longer
MOST_INSTANCES = 64
BYTES_PER_MIB = 1 << 20


class NvmlDriver:
    kind = "nvidia-mig"

    def __init__(self, *, root: Path = Path("/")) -> None:
        """`root` is where the node's files are seen."""
        self._root = root
        self._health = HealthWatch()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="nvml")
        self._started = False
        self._seen: dict[int, Gpu] = {}

    async def configure(self, annotations: Mapping[str, str]) -> None:
        """Real hardware needs no configuration."""

    async def discover(self) -> Sequence[Gpu]:
        return await self._ask(self._discover)

    async def slices(self) -> Sequence[Slice]:
        return await self._ask(self._slices)

    async def create(self, place: SlicePlacement) -> Slice:
        return await self._call(lambda: self._create(place))

    async def destroy(self, place: SlicePlacement) -> None:
        await self._call(lambda: self._destroy(place))

    def environment(self, uuids: Sequence[DeviceUUID]) -> Mapping[str, str]:
        return environment.nvidia(uuids)

    async def device_nodes(self, uuids: Sequence[DeviceUUID]) -> Sequence[str]:
        return await self._ask(lambda: nvml_nodes.of_devices(uuids, self._root))

    async def mounts(self, device: str, uuids: Sequence[DeviceUUID]) -> Sequence[tuple[str, str]]:
        del device
        return nvml_nodes.requests(uuids)

    async def update_files(self, held: Collection[DeviceUUID]) -> None:
        """The files that containers get belong to the driver."""

    def remove_files(self, device: str) -> None:
        """As above."""

    async def processes(self, users: Sequence[GpuUser]) -> Sequence[Process]:
        del users  # the driver knows the processes themselves
        return await self._ask(self._processes)

    async def close(self) -> None:
        if self._started:
            await self._ask(pynvml.nvmlShutdown)
            self._started = False
        self._threads.shutdown(wait=False)

    async def _ask(self, function: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._call(function)
        except TimeoutError:
            raise Unavailable(f"NVML did not respond within {ANSWER_SECONDS:g} s: the driver or a GPU hangs") from None

    async def _call(self, function: Callable[[], T]) -> T:
        def guarded() -> T:
            with translated(self._forget):
                if not self._started:
                    pynvml.nvmlInit()
                    self._started = True
                return function()

        return await asyncio.get_running_loop().run_in_executor(self._threads, guarded)

    def _forget(self) -> None:
        """The driver was reloaded: initialize again with the next call."""
        self._started = False
        self._health.forget()

    # In a thread

    def _discover(self) -> list[Gpu]:
        found: list[Gpu] = []
        answering: dict[DeviceUUID, Any] = {}
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                device = pynvml.nvmlDeviceGetHandleByIndex(index)
                gpu = _describe(device)
            except pynvml.NVMLError as error:
                lost = isinstance(error, pynvml.NVMLError_GpuIsLost)
                if index not in self._seen and lost:
                    continue
                if index not in self._seen or error.value in RELOADED:
                    raise
                gpu = dataclasses.replace(self._seen[index], fault="the GPU is lost" if lost else f"NVML: {error}")
            else:
                self._seen[index] = gpu
                answering[gpu.uuid] = device
            found.append(gpu)
        self._health.look(answering)
        return [dataclasses.replace(gpu, fault=gpu.fault or self._health.fault(gpu.uuid)) for gpu in found]

    def _slices(self) -> list[Slice]:
        found: list[Slice] = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                device = pynvml.nvmlDeviceGetHandleByIndex(index)
                if _mig_mode(device):
                    uuid = _uuid(device)
                    found += [_slice(uuid, profile, instance) for profile, instance in _instances(device)]
            except pynvml.NVMLError_GpuIsLost:
                continue
        return found

    def _create(self, place: SlicePlacement) -> Slice:
        device = self._device(place.gpu)
        profile = self._profile(device, place)
        wanted = pynvml.c_nvmlGpuInstancePlacement_t(place.start, place.size)
        try:
            instance = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(device, profile.id, byref(wanted))
        except pynvml.NVMLError_InsufficientResources:
            raise PlacementTaken(f"{place}: it overlaps another slice") from None
        try:
            filling = profiles.whole_instance(instance, profile)
            compute = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, filling)
            return Slice(place, _slice_uuid(compute))
        except BaseException:
            pynvml.nvmlGpuInstanceDestroy(instance)
            raise

    def _destroy(self, place: SlicePlacement) -> None:
        try:
            device = self._device(place.gpu)
        except pynvml.NVMLError_NotFound:
            return  # the GPU was taken out
        for profile, instance in _instances(device):
            info = pynvml.nvmlGpuInstanceGetInfo(instance)
            if profile.name == place.profile and info.placement.start == place.start:
                try:
                    _destroy_instance(instance, profile)
                except pynvml.NVMLError_InUse:
                    running = nvml_processes.of_device(device, DeviceUUID(""), {info.id: place.gpu})
                    users = [str(user.pid) for user in running if user.device]
                    told = f" (process {', '.join(users)})" if users else ""
                    raise Busy(f"{place}: it is in use{told}") from None
                except pynvml.NVMLError_NotFound:
                    return  # already destroyed

    def _processes(self) -> list[Process]:
        found: list[Process] = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                device = pynvml.nvmlDeviceGetHandleByIndex(index)
                slices = {
                    pynvml.nvmlGpuInstanceGetInfo(instance).id: _slice(DeviceUUID(""), profile, instance).uuid
                    for profile, instance in (_instances(device) if _mig_mode(device) else ())
                }
                found += nvml_processes.of_device(device, _uuid(device), slices)
            except (pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_NotSupported):
                if index in self._seen:
                    found.append(Process(0, self._seen[index].uuid, None))
        return found

    def _device(self, uuid: DeviceUUID) -> Any:
        return pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())

    def _profile(self, device: Any, place: SlicePlacement) -> GiProfile:
        if not _mig_mode(device):
            raise Refused(f"{place.gpu} is not in MIG mode: it cannot hold {place.profile}")
        for profile in profiles.of_device(device):
            if profile.name == place.profile:
                return profile
        raise Refused(f"{place.gpu} has no profile {place.profile}")


def _describe(device: Any) -> Gpu:
    sliced = _mig_mode(device)
    return Gpu(
        uuid=_uuid(device),
        model=text(pynvml.nvmlDeviceGetName(device)),
        memory_mib=pynvml.nvmlDeviceGetMemoryInfo(device).total // BYTES_PER_MIB,
        sliced=sliced,
        profiles=tuple(profile.facts() for profile in profiles.of_device(device)) if sliced else (),
    )


def _destroy_instance(instance: Any, profile: GiProfile) -> None:
    for compute in profiles.compute_instances(instance, profile):
        pynvml.nvmlComputeInstanceDestroy(compute)
    pynvml.nvmlGpuInstanceDestroy(instance)


def _mig_mode(device: Any) -> bool:
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(device)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return False
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _instances(device: Any) -> list[tuple[GiProfile, Any]]:
    return [
        (profile, instance)
        for profile in profiles.of_device(device)
        for instance in profiles.listed(
            pynvml.nvmlDeviceGetGpuInstances, device, profile.id, pynvml.c_nvmlGpuInstance_t, MOST_INSTANCES
        )
    ]


def _slice(gpu: DeviceUUID, profile: GiProfile, instance: Any) -> Slice:
    where = pynvml.nvmlGpuInstanceGetInfo(instance).placement
    computes = profiles.compute_instances(instance, profile)
    return Slice(
        SlicePlacement(gpu, profile.name, where.start, where.size),
        _slice_uuid(computes[0]) if computes else DeviceUUID(""),
    )


def _uuid(device: Any) -> DeviceUUID:
    return DeviceUUID(text(pynvml.nvmlDeviceGetUUID(device)))


def _slice_uuid(compute: Any) -> DeviceUUID:
    return _uuid(pynvml.nvmlComputeInstanceGetInfo_v2(compute).device)
