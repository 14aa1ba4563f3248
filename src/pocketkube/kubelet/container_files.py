"""The files of a container: its mounts, and a folder of its own for everything else."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pocketkube.kubelet import confined_paths


@dataclass(frozen=True)
class Mount:
    """A volume, or the part of it that `inner` names. No path of the mount leaves the volume."""

    volume: Path
    inner: str = ""

    def path(self, rest: str = "") -> Path:
        return confined_paths.resolve(self.volume, f"{self.inner}/{rest}")


@dataclass(frozen=True)
class ContainerFiles:
    """Paths of the container, and where they are on this machine."""

    root: Path
    mounts: Mapping[str, Mount] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        clean = absolute(name)
        for mount in sorted(self.mounts, key=len, reverse=True):
            if clean == mount or clean.startswith(mount.rstrip("/") + "/"):
                return self.mounts[mount].path(clean[len(mount) :])
        return confined_paths.resolve(self.root, clean)


def absolute(name: str) -> str:
    """A path of a container without `.`, `..` and double slashes."""
    return posixpath.normpath("/" + name.lstrip("/"))
