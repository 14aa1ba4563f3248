"""What the agent needs from hardware that can be partitioned into slices.

A partitioner knows the GPUs of one node with their profiles and placements, and creates slices on them. It knows
nothing of pods, claims or the kubelet; the agent knows nothing of NVML. Slices are addressed by their
placement (GPU, profile, start), because it is known before a slice exists and its uuid is not.

All methods may be called concurrently; create and destroy never two at a time for one GPU.

    PartitionError              a call that did not do what was asked; `reason` is stable
    ├── Busy                    a process still uses the slice: try again
    ├── PlacementTaken          another slice is there
    ├── GpuLost                 the GPU does not answer
    ├── Refused                 the hardware will never do this (profile, place, mode)
    └── Unavailable             the driver itself does not work
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from apportion.apis.identities import DeviceUUID, PodUID
from apportion.apis.placements import SlicePlacement


@dataclass(frozen=True)
class ProfileFacts:
    """One profile: `size` units, from any of `starts`, at most `limit` times per GPU (0: as places allow).

    `gi_index` and `ci_index` are NVML's enum values of the profile and of the compute instance that fills it.
    """

    name: str
    size: int
    starts: tuple[int, ...]
    limit: int = 0
    gi_index: int | None = None
    ci_index: int | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU. It can be divided only if `sliced` (MIG mode is on); `fault` says why it is not healthy.

    `fixed` are static slices: containers get these, and no others are created on this GPU.
    It is None if the GPU has no static layout.
    """

    uuid: DeviceUUID
    model: str
    memory_mib: int
    sliced: bool
    profiles: tuple[ProfileFacts, ...] = ()
    fault: str = ""
    fixed: tuple[Slice, ...] | None = None

    @property
    def healthy(self) -> bool:
        return not self.fault

    def profile(self, name: str) -> ProfileFacts | None:
        return next((profile for profile in self.profiles if profile.name == name), None)


@dataclass(frozen=True)
class Slice:
    """A slice that exists. Without a uuid it is half made: no container can use it yet."""

    place: SlicePlacement
    uuid: DeviceUUID


@dataclass(frozen=True)
class Layout:
    """The layout of a GPU: whole, or exactly these slices, or (none) slices on demand."""

    sliced: bool
    places: tuple[SlicePlacement, ...] = ()


class PartitionError(Exception):
    reason: ClassVar[str] = "PartitionFailed"


class Busy(PartitionError):
    reason = "Busy"


class PlacementTaken(PartitionError):
    reason = "PlaceTaken"  # as conditions show it: reasons are stable


class GpuLost(PartitionError):
    reason = "GPULost"


class Refused(PartitionError):
    reason = "Refused"


class Unavailable(PartitionError):
    reason = "DriverUnavailable"


class Partitioner(Protocol):
    """One node's hardware. `kind` names the technique, e.g. `nvidia-mig`."""

    kind: str

    async def configure(self, annotations: Mapping[str, str]) -> None:
        """Told at the start and whenever the annotations of the Node change."""

    async def discover(self) -> Sequence[Gpu]:
        """All GPUs with their profiles, their places and their health, in a stable order."""

    async def slices(self) -> Sequence[Slice]:
        """Every slice on every GPU that responds, including slices of other programs."""

    async def create(self, place: SlicePlacement) -> Slice:
        """Make the slice at exactly this place; each one gets a uuid that never was before."""

    async def destroy(self, place: SlicePlacement) -> None:
        """Remove the slice at this place; nothing there is success."""

    def environment(self, uuids: Sequence[DeviceUUID]) -> Mapping[str, str]:
        """The environment with which a container sees exactly these slices, in this order."""

    async def close(self) -> None: ...


@runtime_checkable
class LaysOut(Protocol):
    """A partitioner whose GPUs can have a static layout."""

    async def lay_out(self, gpu: DeviceUUID, layout: Layout | None) -> None:
        """Give an empty GPU this layout; None gives back the mode that it has by itself."""


@runtime_checkable
class HasDevices(Protocol):
    """A partitioner whose slices are reached through files of the node."""

    async def device_nodes(self, uuids: Sequence[DeviceUUID]) -> Sequence[str]:
        """The files under /dev that a container needs for these slices or GPUs."""


@dataclass(frozen=True)
class Process:
    """A process on a GPU: `device` is the uuid of its slice, or of the GPU where there is none.

    The memory is None if the driver does not report it. `pod` is for drivers that know it; otherwise the process id
    tells.
    """

    pid: int
    device: DeviceUUID
    memory_mib: int | None
    pod: PodUID | None = None


@dataclass(frozen=True)
class GpuUser:
    """A running pod that was given devices. Of a device that it shares it has so many MiB, of others (None) all."""

    uid: PodUID
    namespace: str
    name: str
    devices: Mapping[DeviceUUID, int | None]
    annotations: Mapping[str, str]


@runtime_checkable
class Measures(Protocol):
    """A partitioner that can list the processes on its GPUs."""

    async def processes(self, users: Sequence[GpuUser]) -> Sequence[Process]:
        """Every process on every GPU, with the memory that it uses; `users` are the pods with devices.

        One without a process id and of unknown memory stands for a GPU that does not answer."""


@runtime_checkable
class ReadsAnnotations(Protocol):
    """A partitioner that takes values from annotations of pods."""

    def problem_of(self, user: GpuUser) -> str:
        """What is wrong with a value, and the fix; empty if nothing is."""


@runtime_checkable
class MountsFiles(Protocol):
    """A partitioner that gives containers files of the node, one set per CDI device."""

    async def update_files(self, held: Collection[DeviceUUID]) -> None:
        """Bring the node's own files up to date; `held` are the devices that pods hold."""

    async def mounts(self, device: str, uuids: Sequence[DeviceUUID]) -> Sequence[tuple[str, str]]:
        """(host path, container path) of each file for a container with these slices or GPUs."""

    def remove_files(self, device: str) -> None:
        """Nobody uses this CDI device any more."""


async def device_nodes(driver: Partitioner, uuids: Sequence[DeviceUUID]) -> Sequence[str]:
    return await driver.device_nodes(uuids) if isinstance(driver, HasDevices) else ()


def remove_files(driver: Partitioner, device: str) -> None:
    if isinstance(driver, MountsFiles):
        driver.remove_files(device)


async def mounts(driver: Partitioner, device: str, uuids: Sequence[DeviceUUID]) -> Sequence[tuple[str, str]]:
    return await driver.mounts(device, uuids) if isinstance(driver, MountsFiles) else ()
