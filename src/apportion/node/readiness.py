"""What prevents slices on a node whose GPUs are healthy: its disk, or another device plugin.

Checked periodically, so that a node is ready again as soon as the cause is removed. Existing slices are kept in the
meantime.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from apportion.apis import names
from apportion.apis.pods import Pod

# How NVIDIA's manifest, its chart and its operator mark the pods of their device plugin.
_PLUGIN_LABELS = (
    ("name", "nvidia-device-plugin-ds"),
    ("app.kubernetes.io/name", "nvidia-device-plugin"),
    ("app", "nvidia-device-plugin-daemonset"),
)
_PLUGIN_IMAGE = "k8s-device-plugin"
FOREIGN_DEVICE_PLUGIN = "ForeignDevicePlugin"


@dataclass(frozen=True)
class Readiness:
    """Can the node take pods with slices? If not, `reason` and `message` say why."""

    ready: bool
    reason: str
    message: str


READY = Readiness(ready=True, reason="Serving", message="The agent is registered with the kubelet")
STARTING = Readiness(ready=False, reason="Starting", message="The agent is starting")
STOPPED = Readiness(ready=False, reason="AgentStopped", message="The agent was stopped")
UNREGISTERED = Readiness(ready=False, reason="NotRegistered", message="The agent is not registered with the kubelet")


class NodeChecks:
    """What was found the last time: a folder that cannot be written, another device plugin."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self.folder: Readiness | None = None
        self.plugin: Readiness | None = None

    @property
    def failure(self) -> Readiness | None:
        return self.plugin or self.folder

    def run(self, pods: Iterable[Pod]) -> None:
        self.plugin = foreign_device_plugin(pods)
        self.folder = unwritable_folder(self._folders)


def unwritable_folder(folders: Sequence[Path]) -> Readiness | None:
    """The first folder that the agent needs and cannot write to."""
    for folder in folders:
        if problem := _problem(folder):
            text = f"{folder} {problem}: no slices are created on this node until that is fixed"
            return Readiness(ready=False, reason="FolderNotWritable", message=text)
    return None


def foreign_device_plugin(pods: Iterable[Pod]) -> Readiness | None:
    """NVIDIA's own device plugin: two plugins for the same GPUs would allocate each device twice."""
    for pod in pods:
        if is_device_plugin(pod) and not pod.terminal:
            text = (
                f"NVIDIA's device plugin runs on this node (pod {pod.metadata.namespace}/{pod.metadata.name}): "
                "no slices are created here; remove the plugin from this node, "
                f"or the node's label {names.MIG_CAPABLE_LABEL}"
            )
            return Readiness(ready=False, reason=FOREIGN_DEVICE_PLUGIN, message=text)
    return None


def is_device_plugin(pod: Pod) -> bool:
    if any(pod.metadata.labels.get(key) == value for key, value in _PLUGIN_LABELS):
        return True
    return any(_repository(container.image) == _PLUGIN_IMAGE for container in pod.spec.containers)


def _problem(folder: Path) -> str:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"cannot be created ({error.strerror})"
    return "" if os.access(folder, os.W_OK | os.X_OK) else "cannot be written to"


def _repository(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]
