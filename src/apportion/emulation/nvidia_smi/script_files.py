"""What `nvidia-smi` shows on this node and in its containers: rendered into shell scripts.

One script for the node lies beside the agent's other state; each container gets one of its own through its
CDI device, which shows what that container was given and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from apportion.core.catalog import Catalog, Model
from apportion.emulation.nvidia_smi import script
from apportion.emulation.nvidia_smi.machine import Instance, Machine, VisibleGpu, instance_id
from apportion.node import atomic_files
from apportion.node.hardware.partitioner import Gpu, Slice

FILE_NAME = "nvidia-smi"
FOLDER_NAME = "containers"
CONTAINER_PATH = "/usr/bin/nvidia-smi"


class ScriptFiles:
    """Only emulated GPUs need it: elsewhere NVIDIA's own program comes with its driver."""

    def __init__(self, state_dir: Path, catalog: Catalog) -> None:
        self._path = state_dir / FILE_NAME
        self._folder = state_dir / FOLDER_NAME
        self._catalog = catalog

    def write_for_node(self, gpus: Sequence[Gpu], slices: Sequence[Slice], held: Collection[str]) -> None:
        """What pods hold counts as used."""
        used = {*held, *(each.uuid for each in slices)}
        _write(self._path, script.render(self._machine(gpus, slices, used)))

    def write_for_container(
        self, name: str, gpus: Sequence[Gpu], slices: Sequence[Slice], uuids: Collection[str]
    ) -> tuple[str, str]:
        """(host path, container path) of the script for a container with these devices."""
        path = self._script(name)
        _write(path, script.render(self._machine(gpus, slices, ()).visible(uuids)))
        return str(path), CONTAINER_PATH

    def remove(self, name: str) -> None:
        self._script(name).unlink(missing_ok=True)

    def _script(self, name: str) -> Path:
        return self._folder / f"nvidia-smi-{name}"

    def _machine(self, gpus: Sequence[Gpu], slices: Sequence[Slice], used: Collection[str]) -> Machine:
        return Machine(tuple(self._board(index, gpu, slices, used) for index, gpu in enumerate(gpus)))

    def _board(self, index: int, gpu: Gpu, slices: Sequence[Slice], used: Collection[str]) -> VisibleGpu:
        model = self._catalog.find(gpu.model, gpu.memory_mib)
        present = [*(gpu.fixed or ()), *(each for each in slices if each.place.gpu == gpu.uuid)]
        instances = tuple(_instance(each, model, used) for each in sorted(present, key=lambda each: each.place.start))
        memory = gpu.memory_mib if gpu.uuid in used else min(gpu.memory_mib, sum(each.used_mib for each in instances))
        return VisibleGpu(index, gpu.uuid, gpu.model, gpu.memory_mib, gpu.sliced, memory, instances)


def _instance(each: Slice, model: Model | None, used: Collection[str]) -> Instance:
    place = each.place
    profile = model.profile(place.profile) if model else None
    memory = (profile.memory_mib or profile.memory_gb * 1024) if profile else 0
    return Instance(
        profile=place.profile,
        start=place.start,
        size=place.size,
        uuid=each.uuid,
        memory_mib=memory,
        gi=instance_id(model.units if model else place.size, place.start, place.size),
        multiprocessors=(profile.multiprocessors or 0) if profile else 0,
        used_mib=memory if each.uuid in used else 0,
    )


def _write(path: Path, text: str) -> None:
    content = text.encode()
    if path.exists() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_files.write(path, content, mode=0o755)
