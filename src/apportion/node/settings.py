"""Settings of an agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from apportion.apis.identities import NodeName, PodUID
from apportion.apis.installation import Installation

UNKNOWN_UID = PodUID("")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One agent, one node. Times are in seconds."""

    node_name: NodeName
    pod_name: str = ""
    pod_namespace: str = Installation.namespace
    pod_uid: PodUID = UNKNOWN_UID
    driver: str = "emulated"
    kubelet_dir: Path = Path("/var/lib/kubelet")
    cdi_dir: Path = Path("/var/run/cdi")
    state_dir: Path = Path("/var/lib/apportion")
    cgroup_dir: Path = Path("/sys/fs/cgroup")
    host_root: Path = Path("/proc/1/root")  # the agent runs in the PID namespace of the node
    listen: str = "0.0.0.0:9400"
    installation: Installation = field(default_factory=Installation)

    sweep_seconds: float = 5.0  # everything is checked this often, also without a notification
    memory_report_seconds: float = 15.0  # the shortest time between two writes for the sake of used memory alone
    settle_seconds: float = 0.5  # the shortest time between two checks, however many pods come and go
    drain_seconds: float = 1.0  # how often a pod is checked whose processes are about to end
    busy_seconds: float = 2.0  # until the next try to remove a slice that is in use
    poll_seconds: float = 0.5  # how often the kubelet's socket is checked
    answer_seconds: float = 25.0  # the longest answer to PreStartContainer: a kubelet hangs up after 30
    patience_seconds: float = 10.0  # how long PreStartContainer waits for what must be there; a kubelet gives it 30

    @property
    def plugin_dir(self) -> Path:
        return self.kubelet_dir / "device-plugins"
