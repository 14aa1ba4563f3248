"""Standard streams and pipes of the commands of a simulated container, and its files."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Write = Callable[[str], None]


class Pipe:
    """Text from one command to the next."""

    def __init__(self) -> None:
        self._chunks: asyncio.Queue[str | None] = asyncio.Queue()

    def write(self, text: str) -> None:
        self._chunks.put_nowait(text)

    def close(self) -> None:
        self._chunks.put_nowait(None)

    async def lines(self) -> AsyncIterator[str]:
        """Whole lines without their ends."""
        rest = ""
        while (chunk := await self._chunks.get()) is not None:
            *whole, rest = (rest + chunk).split("\n")
            for line in whole:
                yield line
        if rest:
            yield rest


def filled(text: str) -> Pipe:
    pipe = Pipe()
    pipe.write(text)
    pipe.close()
    return pipe


@dataclass
class Streams:
    """Standard input, output and error of a command."""

    out: Write
    err: Write
    stdin: Pipe = field(default_factory=lambda: filled(""))


@dataclass
class Files:
    """A container's file system: mounted folders, and a scratch folder for all the rest."""

    root: Path
    mounts: Mapping[str, Path] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        """Where a path of the container really is."""
        clean = posixpath.normpath(posixpath.join("/", name))
        for mount in sorted(self.mounts, key=len, reverse=True):
            if clean == mount or clean.startswith(mount.rstrip("/") + "/"):
                return self.mounts[mount] / clean[len(mount) :].lstrip("/")
        return self.root / clean.lstrip("/")

    def read(self, name: str) -> str:
        return self.path(name).read_text(errors="replace")

    def write(self, name: str, text: str, *, append: bool = False) -> None:
        target = self.path(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("a" if append else "w") as file:
            file.write(text)
