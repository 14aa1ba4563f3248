"""What a cluster runs besides its own parts: programs in containers, images as processes, more controllers.

Facts of nodes (labels, annotations, capacity) are no plug-in: they are in the plans of the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pocketkube.controllers.all_controllers import Part
from pocketkube.controllers.controller import Control
from pocketkube.kubelet.containers.images import ProcessImage

__all__ = ["Plugins", "ProcessImage"]


@dataclass(frozen=True)
class Plugins:
    """Everything is optional."""

    programs: Mapping[str, str] = field(default_factory=dict)
    """Programs of simulated containers by name, besides those of `kubelet.shell`: each the location (`module:function`)
    of a `kubelet.shell.programs.Program`, since they run in a process of their own."""

    process_images: Sequence[ProcessImage] = ()
    """Images that run as child processes; all others are simulated."""

    image_commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What a simulated image runs when its container names no command, by a pattern for its name."""

    controllers: Sequence[Callable[[Control], Part]] = ()
    """Controllers that run beside those of Kubernetes."""
