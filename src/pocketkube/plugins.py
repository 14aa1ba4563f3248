"""What a cluster runs besides its own parts: programs in containers, images as processes, more controllers.

Facts of nodes (labels, annotations, capacity) are no plug-in: they are in the plans of the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pocketkube.controllers.all_controllers import Part
from pocketkube.controllers.controller import Control
from pocketkube.kubelet.containers.images import ProcessImage
from pocketkube.kubelet.runtime.coroutines import CoroutineImage, OwnPlace
from pocketkube.kubelet.runtime.runs import RuntimeFiles

__all__ = ["CoroutineImage", "OwnPlace", "Plugins", "ProcessImage"]


def _no_files(pod: Mapping[str, Any], node: Mapping[str, Any], env: Mapping[str, str], /) -> Mapping[str, str]:
    del pod, node, env
    return {}


@dataclass(frozen=True)
class Plugins:
    """Everything is optional."""

    programs: Mapping[str, str] = field(default_factory=dict)
    """Programs of simulated containers by name, besides those of `kubelet.shell`: each the location (`module:function`)
    of a `kubelet.shell.programs.Program`, since they run in a process of their own."""

    process_images: Sequence[ProcessImage] = ()
    """Images that run as child processes; all others are simulated."""

    coroutine_images: Sequence[CoroutineImage] = ()
    """Images that run as coroutines of this process, with one command line each: they cost next to nothing."""

    image_commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What a simulated image runs when its container names no command, by a pattern for its name."""

    runtime_files: RuntimeFiles = _no_files
    """Files that simulated containers have besides their own, from the pod, the Node and the variables of the
    container: what a container runtime adds for the devices that the variables name."""

    controllers: Sequence[Callable[[Control], Part]] = ()
    """Controllers that run beside those of Kubernetes."""
