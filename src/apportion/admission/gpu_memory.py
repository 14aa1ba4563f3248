"""GPU memory as a resource, so that quota systems can count it (M01).

A container with slices also requests `gpu.das.com/mem`: the gigabytes in the names of its profiles times their
count. An annotation records the injected values. A value that equals the recorded one is computed again; any other
value was set by the user, and is kept if it covers the slices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from apportion.admission.requests import ManifestContainer, Want
from apportion.apis import names, profiles
from apportion.apis.errors import RequestError


def needed(wants: Iterable[Want]) -> int:
    """The gigabytes of a container's slices; profiles that name no memory count nothing."""
    return sum(profiles.memory_gb(want.profile) * want.count for want in wants if profiles.well_formed(want.profile))


def inject(metadata: dict[str, Any], asked: Iterable[tuple[ManifestContainer, int]]) -> list[str]:
    """Write each container's memory and record it; returns the changes for the log."""
    recorded = _recorded(metadata)
    ours: dict[str, int] = {}
    done = []
    for container, gigabytes in asked:
        current = container.amount(names.GPU_MEMORY)
        if current is None or current == recorded.get(container.name):
            done += _write(container, gigabytes, current)
            if gigabytes:
                ours[container.name] = gigabytes
        elif gigabytes:
            _keep(container, current, gigabytes)
    _record(metadata, ours)
    return done


def _write(container: ManifestContainer, gigabytes: int, current: int | None) -> list[str]:
    if gigabytes:
        container.put(names.GPU_MEMORY, gigabytes)
    elif current is not None:
        container.drop(names.GPU_MEMORY)
    if gigabytes == (current or 0):
        return []
    return [f"{names.GPU_MEMORY}: {gigabytes} injected into container {container.name}"]


def _keep(container: ManifestContainer, current: int, gigabytes: int) -> None:
    if current < gigabytes:
        raise RequestError(
            f"{container.field}.resources.limits[{names.GPU_MEMORY}]",
            current,
            f"the slices of the container have {gigabytes} GB; set {gigabytes} or more, or remove it",
            code="TooLittleMemory",
        )
    container.put(names.GPU_MEMORY, current)


def _recorded(metadata: dict[str, Any]) -> dict[str, int]:
    """What we injected earlier. Anybody can write an annotation: one that we cannot read counts as none."""
    written = (metadata.get("annotations") or {}).get(names.INJECTED_MEMORY)
    try:
        return msgspec.json.decode(written, type=dict[str, int]) if isinstance(written, str) else {}
    except msgspec.DecodeError:
        return {}


def _record(metadata: dict[str, Any], ours: dict[str, int]) -> None:
    annotations = metadata.get("annotations") or {}
    if ours:
        annotations[names.INJECTED_MEMORY] = msgspec.json.encode(ours, order="sorted").decode()
        metadata["annotations"] = annotations
    else:
        annotations.pop(names.INJECTED_MEMORY, None)
