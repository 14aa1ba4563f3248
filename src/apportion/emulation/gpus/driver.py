"""Emulated GPUs: everything that an NVIDIA driver does for slices, in a file.

The file is the hardware. It outlives the agent as a GPU does; to simulate a reboot, empty it. An annotation of
the Node says which GPUs there are.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from apportion.apis.identities import DeviceUUID, NodeName
from apportion.apis.placements import SlicePlacement
from apportion.core import grid
from apportion.core.catalog import Catalog, Model
from apportion.emulation.gpus import memory as pod_memory
from apportion.emulation.gpus.failures import Call, Failures
from apportion.emulation.gpus.inventory import Inventory, InventoryGpu, device_uuid
from apportion.emulation.nvidia_smi.script_files import ScriptFiles
from apportion.node import atomic_files
from apportion.node.container import environment
from apportion.node.hardware.drivers import Site
from apportion.node.hardware.partitioner import (
    Gpu,
    GpuLost,
    GpuUser,
    Layout,
    PlacementTaken,
    Process,
    ProfileFacts,
    Refused,
    Slice,
    Unavailable,
)

log = logging.getLogger(__name__)

FILE_NAME = "emulated-gpus.json"
NIL = uuid.UUID(int=0)


class EmulatedSlice(msgspec.Struct, rename="camel", frozen=True):
    uuid: DeviceUUID
    profile: str
    start: int
    size: int


class EmulatedGpu(msgspec.Struct, rename="camel"):
    """One GPU in the file."""

    uuid: DeviceUUID
    product: str
    memory_mib: int = msgspec.field(name="memoryMiB")
    mig: bool
    slices: list[EmulatedSlice] = []
    fixed: list[EmulatedSlice] | None = None
    laid: bool = False  # the mode of a GPU that was laid out

    @property
    def sliced(self) -> bool:
        return self.mig if self.fixed is None else self.laid


class Hardware(msgspec.Struct, rename="camel"):
    gpus: list[EmulatedGpu] = []


def open_driver(site: Site) -> EmulatedDriver:
    return EmulatedDriver(site.node, site.state_dir)


class EmulatedDriver:
    kind = "nvidia-mig"

    def __init__(self, node: NodeName, state_dir: Path, catalog: Catalog | None = None) -> None:
        self._node = node
        self._path = state_dir / FILE_NAME
        self._catalog = catalog or Catalog.shipped()
        self._scripts = ScriptFiles(state_dir, self._catalog)
        self._failures = Failures()
        self._held: Collection[DeviceUUID] = ()
        self._warned: set[str] = set()

    async def configure(self, annotations: Mapping[str, str]) -> None:
        self._set_failures(Failures.parse(annotations, self._failures))
        wanted = Inventory.parse(annotations, self._catalog)
        self._warn(wanted)
        hardware = self._read()
        before = {board.uuid: board for board in hardware.gpus}
        hardware.gpus = [_board(device_uuid(self._node, index), item, before) for index, item in enumerate(wanted.gpus)]
        present = {board.uuid for board in hardware.gpus}
        # A GPU that is in use is not pulled out: it goes once its last slice is gone.
        hardware.gpus += [board for board in before.values() if board.uuid not in present and board.slices]
        self._write(hardware)

    def _set_failures(self, failures: Failures) -> None:
        if failures.text != self._failures.text:
            log.warning("emulated failures: %s", failures.text or "none")
        self._failures = failures

    def _warn(self, wanted: Inventory) -> None:
        """Warn once: models that do not exist can be emulated."""
        for item in wanted.gpus:
            if item.model.emulated and item.product not in self._warned:
                self._warned.add(item.product)
                log.warning(
                    "%s with %d MiB is not a product of NVIDIA: its profiles are emulated as declared",
                    item.product,
                    item.memory_mib,
                )

    async def discover(self) -> Sequence[Gpu]:
        return [self._gpu(index, board) for index, board in enumerate(self._read().gpus)]

    async def slices(self) -> Sequence[Slice]:
        return [
            Slice(_placement(board, piece), piece.uuid)
            for index, board in enumerate(self._read().gpus)
            if not self._failures.lost(index)
            for piece in board.slices
        ]

    async def lay_out(self, gpu: DeviceUUID, layout: Layout | None) -> None:
        hardware = self._read()
        board = self._board(hardware, gpu)
        if board.slices:
            raise Refused(
                f"{gpu} has slices that were created on demand: its layout cannot change until they are deleted"
            )
        board.fixed, board.laid = None, False
        if layout is not None:
            board.fixed = []
            board.laid = layout.sliced
            for place in layout.places:
                self._check(board, place)
                board.fixed.append(EmulatedSlice(_fixed_uuid(place), place.profile, place.start, place.size))
        self._write(hardware)

    async def create(self, place: SlicePlacement) -> Slice:
        await self._failures.before(Call.create, self._index(place.gpu), str(place))
        hardware = self._read()
        board = self._board(hardware, place.gpu)
        if board.fixed:
            raise Refused(f"{place.gpu} has a static layout: no slices are created on it")
        self._check(board, place)
        made = EmulatedSlice(DeviceUUID(f"MIG-{uuid.uuid4()}"), place.profile, place.start, place.size)
        board.slices = [*board.slices, made]
        self._write(hardware)
        await self._show_slices()
        return Slice(place, made.uuid)

    async def destroy(self, place: SlicePlacement) -> None:
        if all(board.uuid != place.gpu for board in self._read().gpus):
            return  # the GPU was taken out, and its slices with it
        await self._failures.before(Call.destroy, self._index(place.gpu), str(place))
        hardware = self._read()
        board = self._board(hardware, place.gpu)
        board.slices = [piece for piece in board.slices if (piece.profile, piece.start) != (place.profile, place.start)]
        self._write(hardware)
        await self._show_slices()

    def environment(self, uuids: Sequence[DeviceUUID]) -> Mapping[str, str]:
        return environment.nvidia(uuids)

    async def update_files(self, held: Collection[DeviceUUID]) -> None:
        self._held = held
        self._scripts.write_for_node(await self.discover(), await self.slices(), held)

    async def mounts(self, device: str, uuids: Sequence[DeviceUUID]) -> Sequence[tuple[str, str]]:
        return [self._scripts.write_for_container(device, await self.discover(), await self.slices(), uuids)]

    def remove_files(self, device: str) -> None:
        self._scripts.remove(device)

    async def processes(self, users: Sequence[GpuUser]) -> Sequence[Process]:
        """One for each pod and device, with the memory that the pod states: never more than there is."""
        memory = {gpu.uuid: gpu.memory_mib for gpu in await self.discover() if gpu.healthy}
        memory |= {each.uuid: memory[each.place.gpu] for each in await self._all_slices() if each.place.gpu in memory}
        return [
            Process(0, device, min(allocated, memory[device]), user.uid)
            for user in users
            if (allocated := pod_memory.allocated_mib(user.annotations))
            for device in user.devices
            if device in memory
        ]

    def problem_of(self, user: GpuUser) -> str:
        return pod_memory.problem(user.annotations)

    async def _all_slices(self) -> list[Slice]:
        return [*await self.slices(), *(each for gpu in await self.discover() for each in gpu.fixed or ())]

    async def close(self) -> None:
        pass

    async def _show_slices(self) -> None:
        """As on hardware, `nvidia-smi` of the node shows a slice as soon as it exists."""
        with suppress(OSError):  # the agent reports it when it updates the files
            await self.update_files(self._held)

    def _gpu(self, index: int, board: EmulatedGpu) -> Gpu:
        model = self._catalog.find(board.product, board.memory_mib)
        fault = "the GPU does not respond" if self._failures.lost(index) else ""
        fixed = (
            None if board.fixed is None else tuple(Slice(_placement(board, piece), piece.uuid) for piece in board.fixed)
        )
        profiles = () if fixed else _profiles(model)
        return Gpu(board.uuid, board.product, board.memory_mib, board.sliced, profiles, fault, fixed)

    def _check(self, board: EmulatedGpu, place: SlicePlacement) -> None:
        model = self._catalog.find(board.product, board.memory_mib)
        profile = model.profile(place.profile) if model else None
        if not board.sliced:
            raise Refused(f"{board.uuid} is not in MIG mode: it cannot hold {place.profile}")
        if model is None or profile is None:
            raise Refused(f"{board.product} has no profile {place.profile}")
        if place.start not in profile.starts or place.size != profile.size:
            starts = ", ".join(map(str, profile.starts))
            raise Refused(f"{place}: {place.profile} has size {profile.size} and starts at {starts}")
        present = [*board.slices, *(board.fixed or ())]
        taken = next((piece for piece in present if place.overlaps(_placement(board, piece))), None)
        if taken:
            raise PlacementTaken(f"{place}: {taken.profile} at {taken.start} ({taken.uuid}) overlaps this placement")
        grid_of_model = grid.of(model)
        state = grid.EMPTY
        for piece in present:
            state = grid_of_model.put(state, grid_of_model.shapes[piece.profile], piece.start)
        if not grid_of_model.legal(state, grid_of_model.shapes[profile.name], place.start):
            raise PlacementTaken(f"{place}: other slices use the compute units or engines that it needs")

    def _index(self, gpu: DeviceUUID) -> int:
        index = next((i for i, board in enumerate(self._read().gpus) if board.uuid == gpu), None)
        if index is None:
            raise GpuLost(f"{gpu} is not on this node")
        return index

    def _board(self, hardware: Hardware, gpu: DeviceUUID) -> EmulatedGpu:
        return hardware.gpus[self._index(gpu)]

    def _read(self) -> Hardware:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Hardware)
        except FileNotFoundError:
            return Hardware()
        except msgspec.DecodeError as error:
            fix = "delete it to start with GPUs without slices"
            raise Refused(f"{self._path} is not a valid file of emulated GPUs ({error}): {fix}") from None

    def _write(self, hardware: Hardware) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            atomic_files.write(self._path, msgspec.json.format(msgspec.json.encode(hardware), indent=1))
        except OSError as error:
            raise Unavailable(f"cannot write the emulated GPUs to {self._path}: {error.strerror}") from error


def _board(identity: DeviceUUID, item: InventoryGpu, before: Mapping[DeviceUUID, EmulatedGpu]) -> EmulatedGpu:
    old = before.get(identity)
    if old and old.slices:
        return old  # in use: model and mode stay until it is empty
    if old and old.fixed is not None and (old.product, old.memory_mib) == (item.product, item.memory_mib):
        return msgspec.structs.replace(old, mig=item.mig)
    return EmulatedGpu(identity, item.product, item.memory_mib, item.mig)


def _fixed_uuid(place: SlicePlacement) -> DeviceUUID:
    """Always the same: a kubelet that starts again must find the devices that its pods hold."""
    return DeviceUUID(f"MIG-{uuid.uuid5(NIL, f'{place.gpu}-{place.profile}-{place.start}')}")


def _placement(board: EmulatedGpu, piece: EmulatedSlice) -> SlicePlacement:
    return SlicePlacement(board.uuid, piece.profile, piece.start, piece.size)


def _profiles(model: Model | None) -> tuple[ProfileFacts, ...]:
    if model is None:
        return ()
    return tuple(
        ProfileFacts(
            entry.name,
            entry.size,
            tuple(entry.starts),
            entry.limit,
            gi_index=entry.nvml_profile_index,
            ci_index=entry.ci_profile_index,
        )
        for entry in model.profiles
    )
