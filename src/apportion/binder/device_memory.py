"""How much memory a GPU has: by the report of its node's agent, else by the label of NVIDIA's feature discovery."""

from __future__ import annotations

from apportion.apis.identities import DeviceUUID, NodeName
from apportion.apis.installation import Installation
from apportion.apis.shared_gpus import memory_by_label
from apportion.binder.informers import Informers
from apportion.core.shared_device import UNKNOWN, DeviceMemory


class DeviceMemories:
    """Of all nodes."""

    def __init__(self, informers: Informers, installation: Installation) -> None:
        self._informers = informers
        self._namespace = installation.namespace

    def of(self, node: NodeName, device: DeviceUUID) -> DeviceMemory:
        reported = self._reported(node).get(device, 0)
        return DeviceMemory(reported) if reported else self._by_label(node)

    def is_reported(self, node: NodeName, device: DeviceUUID) -> bool:
        """Whether the agent of the node reports such a GPU."""
        return device in self._reported(node)

    def _reported(self, node: NodeName) -> dict[DeviceUUID, int]:
        accelerator = self._informers.accelerators.get(node, self._namespace)
        return {gpu.uuid: gpu.memory_mib for gpu in accelerator.status.gpus} if accelerator is not None else {}

    def _by_label(self, node: NodeName) -> DeviceMemory:
        known = self._informers.nodes.get(node)
        mib = memory_by_label(known.metadata.labels) if known is not None else None
        return DeviceMemory(mib) if mib is not None else UNKNOWN
