"""The files under /dev with which a container reaches its devices.

A slice is reached through its GPU's file plus two capability files, of its GPU instance and of its compute
instance. Their numbers are in a list of the kernel driver, by the GPU's minor number and the instances' ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pynvml

from apportion.apis.identities import DeviceUUID

SHARED = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
CAPABILITIES = "/proc/driver/nvidia-caps/mig-minors"
REQUESTS = "/var/run/nvidia-container-devices"


def of_devices(uuids: Sequence[DeviceUUID], root: Path) -> list[str]:
    """Paths for these GPUs and slices, as far as they exist on the node; `root` is where its files are seen."""
    numbers = _capabilities(root)
    wanted = list(SHARED)
    for uuid in uuids:
        wanted += _of_device(pynvml.nvmlDeviceGetHandleByUUID(uuid.encode()), numbers)
    return [path for path in dict.fromkeys(wanted) if (root / path.lstrip("/")).exists()]


def requests(uuids: Sequence[DeviceUUID]) -> list[tuple[str, str]]:
    """Mounts that NVIDIA's runtime reads as requests for devices, where it is configured to ignore the variable."""
    return [("/dev/null", f"{REQUESTS}/{uuid}") for uuid in uuids]


def _of_device(device: Any, numbers: dict[str, str]) -> list[str]:
    try:
        gpu = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
    except (pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_NotSupported):  # it is no slice
        return [f"/dev/nvidia{pynvml.nvmlDeviceGetMinorNumber(device)}"]
    minor = pynvml.nvmlDeviceGetMinorNumber(gpu)
    instance = f"gpu{minor}/gi{pynvml.nvmlDeviceGetGpuInstanceId(device)}"
    compute = f"{instance}/ci{pynvml.nvmlDeviceGetComputeInstanceId(device)}"
    found = [numbers[key] for key in (f"{instance}/access", f"{compute}/access") if key in numbers]
    return [f"/dev/nvidia{minor}", *(f"/dev/nvidia-caps/nvidia-cap{number}" for number in found)]


def _capabilities(root: Path) -> dict[str, str]:
    try:
        lines = (root / CAPABILITIES.lstrip("/")).read_text().splitlines()
    except OSError:
        return {}
    return dict(line.split(maxsplit=1) for line in lines if len(line.split()) == 2)  # noqa: PLR2004  name, number
