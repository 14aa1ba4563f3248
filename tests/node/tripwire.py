"""Kills an agent between any two of its steps, without a process of its own.

A step is whatever the outside world can see: a write to the API, a change of the hardware, a file written or removed.
At step number n, before or after it took effect, the tripwire raises `Killed`; from then on no step of this agent takes
effect any more, as if it had been killed. What its tasks still do in memory has no effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from apportion.apis.placements import SlicePlacement
from apportion.cluster.client import Client
from apportion.cluster.transport import HttpRequest, Response, Transport
from apportion.node import atomic_files
from apportion.node.hardware import partitioner
from apportion.node.hardware.partitioner import Gpu, MountsFiles, Partitioner, Slice


class Killed(Exception):
    """The agent is dead."""


class Tripwire:
    """Counts steps up to `at`; `after` lets the last step take effect before it trips."""

    def __init__(self, at: int | None, *, after: bool = False) -> None:
        self.steps: list[str] = []
        self.tripped = asyncio.Event()
        self._at = at
        self._after = after

    def before(self, what: str) -> None:
        if self.tripped.is_set():
            raise Killed
        self.steps.append(what)
        if len(self.steps) == self._at and not self._after:
            self._trip()

    def done(self) -> None:
        if self.tripped.is_set():
            raise Killed
        if len(self.steps) == self._at and self._after:
            self._trip()

    def _trip(self) -> None:
        self.tripped.set()
        raise Killed


class WiredTransport:
    def __init__(self, inner: Transport, wire: Tripwire) -> None:
        self._inner = inner
        self._wire = wire

    async def send(self, request: HttpRequest, *, stream: bool = False, timeout: float | None = None) -> Response:  # noqa: ASYNC109
        counts = request.method != "GET" and "/events" not in request.path
        if counts:
            self._wire.before(f"{request.method} {request.path.rpartition('/')[2][-20:]}")
        elif self._wire.tripped.is_set():
            raise Killed
        answer = await self._inner.send(request, stream=stream, timeout=timeout)
        if counts:
            self._wire.done()
        return answer

    async def close(self) -> None:
        await self._inner.close()


class WiredDriver:
    def __init__(self, inner: Partitioner, wire: Tripwire) -> None:
        self._inner = inner
        self._wire = wire
        self.kind = inner.kind

    async def configure(self, annotations: Mapping[str, str]) -> None:
        await self._inner.configure(annotations)

    async def discover(self) -> Sequence[Gpu]:
        return await self._inner.discover()

    async def slices(self) -> Sequence[Slice]:
        return await self._inner.slices()

    async def create(self, place: SlicePlacement) -> Slice:
        self._wire.before("create slice")
        made = await self._inner.create(place)
        self._wire.done()
        return made

    async def destroy(self, place: SlicePlacement) -> None:
        self._wire.before("destroy slice")
        await self._inner.destroy(place)
        self._wire.done()

    async def update_files(self, held: Collection[str]) -> None:
        if isinstance(self._inner, MountsFiles):
            await self._inner.update_files(held)

    async def mounts(self, device: str, uuids: Sequence[str]) -> Sequence[tuple[str, str]]:
        return await partitioner.mounts(self._inner, device, uuids)

    def remove_files(self, device: str) -> None:
        if isinstance(self._inner, MountsFiles):
            self._inner.remove_files(device)

    def environment(self, uuids: Sequence[str]) -> Mapping[str, str]:
        return self._inner.environment(uuids)

    async def close(self) -> None:
        await self._inner.close()


class WiredFiles:
    """Stands in for `node.atomic_files` and for removing CDI files; hardware and texts for people are no steps."""

    def __init__(self) -> None:
        self.wire: Tripwire | None = None
        self._write = atomic_files.write
        self._unlink = Path.unlink

    def write(self, path: Path, content: bytes, *, mode: int = 0o644) -> None:
        counts = self.wire is not None and not path.name.startswith(("emulated-gpus.json", "nvidia-smi"))
        if counts and self.wire:
            self.wire.before(f"write {path.name[:16]}")
        self._write(path, content, mode=mode)
        if counts and self.wire:
            self.wire.done()

    def unlink(self, path: Path, missing_ok: bool = False) -> None:  # noqa: FBT001, FBT002
        counts = self.wire is not None and path.name.startswith("apportion-slice-")
        if counts and self.wire:
            self.wire.before("unlink CDI file")
        self._unlink(path, missing_ok=missing_ok)
        if counts and self.wire:
            self.wire.done()


def client(inner: Transport, wire: Tripwire) -> Client:
    return Client(WiredTransport(inner, wire))
