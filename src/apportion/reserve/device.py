"""Which GPU this container has.

A device plugin that names GPUs by UUID in the environment has said it, with emulated GPUs too. Otherwise the driver
is asked: in a container it knows only the devices that the container was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from apportion.apis import names
from apportion.reserve import nvml
from apportion.reserve.errors import Misconfigured

GPU = "GPU-"


def find(environment: Mapping[str, str], ask_driver: Callable[[], Sequence[str]] = nvml.uuids) -> str:
    """The UUID of the only GPU; raises Misconfigured if there is none, or more than one."""
    named = environment.get(names.VISIBLE_DEVICES, "").strip()
    if named.startswith(GPU) and "," not in named:
        return named
    found = ask_driver()
    if len(found) == 1:
        return found[0]
    if not found:
        raise Misconfigured(
            f"this container has no GPU: its pod must request {names.NVIDIA_GPU}: 1, and its runtime class must be one "
            "that gives containers their GPUs"
        )
    raise Misconfigured(
        f"this container sees {len(found)} GPUs instead of one ({', '.join(found)}): "
        f"its pod must request {names.NVIDIA_GPU}: 1 and must not be privileged"
    )
