"""Which pod holds which device ids, from the kubelet's checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from apportion.apis import profiles
from apportion.apis.identities import PodUID
from apportion.apis.kubelet import checkpoint
from apportion.apis.kubelet.checkpoint import Checkpoint
from apportion.node.kubelet.prestart_errors import NotRecorded

POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Holding:
    """Devices of one resource that containers of a pod hold with the same ids."""

    pod_uid: PodUID
    resource: str
    ids: frozenset[str]
    containers: frozenset[str]


@dataclass(frozen=True)
class Holder:
    """The pod to which ids belong, and all slices that the kubelet gave it, by container."""

    pod_uid: PodUID
    containers: frozenset[str]
    holdings: tuple[Holding, ...]

    def of(self, container: str) -> list[Holding]:
        return [holding for holding in self.holdings if container in holding.containers]


class Allocations:
    def __init__(self, plugin_dir: Path) -> None:
        self._path = plugin_dir / checkpoint.FILE_NAME

    def read(self) -> Checkpoint:
        """The file as it is; none, or one that cannot be read, counts as empty."""
        try:
            return checkpoint.decode(self._path.read_bytes())
        except (OSError, msgspec.DecodeError):
            return Checkpoint()

    def holdings(self, counts: Callable[[str], object], pod_uid: PodUID | None = None) -> list[Holding]:
        """What one pod holds, or all, of the resources that count."""
        return _holdings(self.read(), counts, pod_uid)

    def allocated(self, resource: str) -> frozenset[str]:
        entries = self.read().entries()
        return frozenset(device for entry in entries if entry.resource_name == resource for device in entry.ids())

    async def holder(self, resource: str, ids: Sequence[str], *, patience: float) -> Holder:
        """Who holds exactly these ids; waits for the kubelet to write it down."""
        end = asyncio.get_running_loop().time() + patience
        while True:
            record = self.read()
            holders = record.holders(resource, ids)
            pods = {PodUID(entry.pod_uid) for entry in holders}
            if len(pods) == 1:
                uid = pods.pop()
                containers = frozenset(entry.container_name for entry in holders)
                return Holder(uid, containers, tuple(_holdings(record, profiles.slice_profile, uid)))
            if asyncio.get_running_loop().time() >= end:
                found = f"{len(pods)} pods" if pods else "no pod"
                raise NotRecorded(
                    f"the kubelet recorded {found} for the devices {', '.join(sorted(ids))} of {resource}"
                )
            await asyncio.sleep(POLL_SECONDS)


def _holdings(record: Checkpoint, counts: Callable[[str], object], pod_uid: PodUID | None) -> list[Holding]:
    grouped: dict[tuple[PodUID, str, frozenset[str]], set[str]] = {}
    for entry in record.entries():
        if pod_uid in (None, entry.pod_uid) and counts(entry.resource_name):
            key = (PodUID(entry.pod_uid), entry.resource_name, entry.ids())
            grouped.setdefault(key, set()).add(entry.container_name)
    ordered = sorted(grouped.items(), key=lambda item: (*item[0][:2], sorted(item[0][2])))
    return [Holding(*key, frozenset(containers)) for key, containers in ordered]
