"""The environment that names the NVIDIA devices of a container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from apportion.apis import names
from apportion.apis.identities import DeviceUUID


def nvidia(uuids: Sequence[DeviceUUID]) -> Mapping[str, str]:
    """CUDA numbers the visible devices from 0, whatever their place on the GPUs."""
    return {
        names.VISIBLE_DEVICES: ",".join(uuids),
        names.CUDA_VISIBLE_DEVICES: ",".join(str(index) for index in range(len(uuids))),
    }
