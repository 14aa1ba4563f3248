"""The kubelet's own record of which container holds which device ids.

A kubelet writes `kubelet_internal_checkpoint` into its device-plugin folder at every admission,
by rename. It is the only place that joins a pod's uid, a container and its ids. One set of ids can
stand there twice: an ordinary init container hands its devices on to a later container of its pod.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

FILE_NAME = "kubelet_internal_checkpoint"
NO_NUMA_NODE = "-1"


class PodDevices(msgspec.Struct, rename="pascal", frozen=True):
    """The devices of one resource that one container holds, by NUMA node (`-1` without topology)."""

    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str
    resource_name: str
    device_ids: dict[str, list[str]] | None = msgspec.field(name="DeviceIDs", default=None)
    alloc_resp: str | None = None

    def ids(self) -> frozenset[str]:
        # A device close to two NUMA nodes is listed under both.
        return frozenset(device for devices in (self.device_ids or {}).values() for device in devices)


class Content(msgspec.Struct, rename="pascal", frozen=True):
    # Go writes an empty slice or map as null.
    pod_device_entries: list[PodDevices] | None = None
    registered_devices: dict[str, list[str]] | None = None


class Checkpoint(msgspec.Struct, rename="pascal", frozen=True):
    """The whole file. A real kubelet checks `checksum` when it starts; readers have no use for it."""

    data: Content = Content()
    checksum: int = 0

    def entries(self) -> list[PodDevices]:
        return self.data.pod_device_entries or []

    def registered(self) -> dict[str, list[str]]:
        return self.data.registered_devices or {}

    def holders(self, resource: str, ids: Iterable[str]) -> list[PodDevices]:
        """Every container that holds exactly these ids of this resource."""
        wanted = frozenset(ids)
        return [entry for entry in self.entries() if entry.resource_name == resource and entry.ids() == wanted]

    def container(self, pod_uid: str, container: str) -> list[PodDevices]:
        """All that one container holds, one entry per resource."""
        return [e for e in self.entries() if e.pod_uid == pod_uid and e.container_name == container]


def decode(text: bytes) -> Checkpoint:
    """Raises msgspec.DecodeError (a ValueError) for anything that is no checkpoint."""
    return msgspec.json.decode(text, type=Checkpoint)


def encode(checkpoint: Checkpoint) -> bytes:
    return msgspec.json.encode(checkpoint)
