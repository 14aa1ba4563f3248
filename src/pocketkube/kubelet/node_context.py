"""What a kubelet shares with the pods it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apportion.cluster.client import Client
from apportion.cluster.events import Recorder, Regarding
from pocketkube.clock import Clock
from pocketkube.kubelet.addresses import Addresses
from pocketkube.kubelet.containers.cgroups import Cgroups
from pocketkube.kubelet.containers.environment import Settings
from pocketkube.kubelet.containers.images import Images
from pocketkube.kubelet.containers.probes import NetworkChecks
from pocketkube.kubelet.devices.node_devices import NodeDevices
from pocketkube.kubelet.runtime.runs import RuntimeFiles
from pocketkube.kubelet.sandbox.connection import Sandbox
from pocketkube.kubelet.settings import KubeletSettings

Json = dict[str, Any]


@dataclass
class NodeContext:
    """One node: its folders, its devices, and how it reaches the API."""

    name: str
    address: str
    root: Path
    pods: Path  # outside the root: no host path of a pod leads to the tokens and secrets of other pods
    shared: Path
    client: Client
    client_of: Callable[[Mapping[str, Any]], Client]  # acts as the service account of a pod
    clock: Clock
    recorder: Recorder
    settings: KubeletSettings
    devices: NodeDevices
    cgroups: Cgroups
    addresses: Addresses
    checks: NetworkChecks
    stored: Settings
    images: Images
    sandbox: Sandbox
    runtime_files: RuntimeFiles
    node: Callable[[], Mapping[str, Any]]
    active: Callable[[], list[Json]]
    api_host: str
    api_port: int
    admitting: asyncio.Lock = field(default_factory=asyncio.Lock)

    def allocatable(self) -> Mapping[str, Any]:
        status: Mapping[str, Any] = self.node().get("status") or {}
        return status.get("allocatable") or {}

    def pod_folder(self, uid: str) -> Path:
        return self.pods / uid

    def log_folder(self, pod: Mapping[str, Any]) -> Path:
        meta = pod["metadata"]
        return self.root / "var/log/pods" / f"{meta['namespace']}_{meta['name']}_{meta['uid']}"


def regarding(pod: Mapping[str, Any], container: str = "", *, init: bool = False) -> Regarding:
    """A pod, or one of its containers, as events name it."""
    meta = pod["metadata"]
    path = f"spec.{'initContainers' if init else 'containers'}{{{container}}}" if container else ""
    return Regarding("v1", "Pod", meta["name"], meta["namespace"], meta["uid"], meta.get("resourceVersion", ""), path)
