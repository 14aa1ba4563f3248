"""What the NVIDIA container runtime adds to a container: `nvidia-smi` for the GPUs that its variables name.

The agent mounts a script for the devices that the kubelet gave to a container. A container with a share of a GPU was
given none by the kubelet: only the variable names its GPU, and the runtime follows it. Slices are known to the agent
alone, so a container that names one keeps what the agent mounted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from apportion.apis import names
from apportion.apis.shared_gpus import CDI_GPU
from apportion.core.catalog import Catalog
from apportion.emulation.gpus.inventory import Inventory, device_uuid
from apportion.emulation.gpus.memory import allocated_mib
from apportion.emulation.nvidia_smi import script
from apportion.emulation.nvidia_smi.machine import Machine, VisibleGpu
from apportion.emulation.nvidia_smi.script_files import CONTAINER_PATH
from apportion.node.hardware.partitioner import Refused

_NOTHING = ("", "void", "none")
_MIG = "MIG-"


def files(pod: Mapping[str, Any], node: Mapping[str, Any], env: Mapping[str, str], /) -> Mapping[str, str]:
    """The script by its path; nothing on nodes without emulated GPUs and for containers that name no GPU."""
    declared = (node["metadata"].get("annotations") or {}).get(names.EMULATED_GPUS)
    named = [each.strip().removeprefix(CDI_GPU) for each in env.get(names.VISIBLE_DEVICES, "").split(",")]
    if declared is None or named[0] in _NOTHING or any(each.startswith(_MIG) for each in named):
        return {}
    boards = _boards(node["metadata"]["name"], declared)
    seen = Machine(boards).visible(_chosen(boards, named)).boards
    used = allocated_mib(pod["metadata"].get("annotations") or {})
    shown = (msgspec.structs.replace(board, used_mib=min(used, board.memory_mib)) for board in seen)
    return {CONTAINER_PATH: script.render(Machine(tuple(shown)))}


def _chosen(boards: Sequence[VisibleGpu], named: Sequence[str]) -> list[str]:
    """By UUID, by number, or `all`, as the runtime takes them. What the node does not have is not seen."""
    if "all" in named:
        return [board.uuid for board in boards]
    return [board.uuid for board in boards if board.uuid in named or str(board.index) in named]


@lru_cache(maxsize=256)
def _boards(node: str, declared: str) -> tuple[VisibleGpu, ...]:
    try:
        found = Inventory.parse({names.EMULATED_GPUS: declared}, Catalog.shipped()).gpus
    except Refused:
        return ()
    return tuple(
        VisibleGpu(index, device_uuid(node, index), gpu.product, gpu.memory_mib)  # as a whole it is not in MIG mode
        for index, gpu in enumerate(found)
    )
