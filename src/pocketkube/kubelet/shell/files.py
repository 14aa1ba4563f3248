"""The files of a container, as its simulated programs use them."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from pocketkube.kubelet import confined_paths
from pocketkube.kubelet.container_files import ContainerFiles
from pocketkube.kubelet.shell import streams
from pocketkube.kubelet.shell.limits import MIB, PER_FILE, Allowance

_CHUNK = 16_384
_LARGEST_WHOLE = MIB


@dataclass(frozen=True)
class Files:
    """Every name is a path of the container; what is written counts."""

    container: ContainerFiles
    allowance: Allowance

    def path(self, name: str) -> Path:
        return self.container.path(name)

    def read(self, name: str) -> str:
        """A whole file of moderate size."""
        found = confined_paths.read_bytes(self.path(name), _LARGEST_WHOLE + 1)
        if len(found) > _LARGEST_WHOLE:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return found.decode(errors="replace")

    def chunks(self, name: str) -> AsyncIterator[str]:
        return streams.decoded(self._pieces(name))

    async def _pieces(self, name: str) -> AsyncIterator[bytes]:
        with confined_paths.open_to_read(self.path(name)) as file:
            while piece := file.read(_CHUNK):
                await self.allowance.step(len(piece))
                yield piece

    def write(self, name: str, text: str, *, append: bool = False) -> None:
        target = self.path(name)
        if not target.exists():
            self.make_directory(target.parent)
            self.allowance.write(PER_FILE)
        data = text.encode(errors="replace")
        self.allowance.write(len(data))
        with confined_paths.open_to_write(target, append=append) as file:
            file.write(data)

    def make_directory(self, path: Path) -> None:
        if not path.is_dir():
            self.allowance.write(PER_FILE)
            path.mkdir(parents=True, exist_ok=True)
