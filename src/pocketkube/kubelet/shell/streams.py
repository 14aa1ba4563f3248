"""Standard streams and pipes of the commands of a simulated container."""

from __future__ import annotations

import asyncio
import codecs
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from pocketkube.kubelet.shell.limits import Allowance

Write = Callable[[str], Awaitable[None]]
CHUNK = 4_096
LONGEST_LINE = 262_144
_ROOM = 65_536
_PER_CHUNK = 64


class Pipe:
    """Text from one command to the next; whoever writes waits until there is room."""

    def __init__(self, text: str = "") -> None:
        self._chunks = deque([text] if text else [])
        self._size = 0
        self._closed = bool(text)
        self._some = asyncio.Event()
        self._room = asyncio.Event()

    async def write(self, text: str) -> None:
        for start in range(0, len(text), CHUNK):
            piece = text[start : start + CHUNK]
            while self._size >= _ROOM:
                self._room.clear()
                await self._room.wait()
            self._chunks.append(piece)
            self._size += len(piece) + _PER_CHUNK
            self._some.set()

    def close(self) -> None:
        self._closed = True
        self._some.set()

    async def chunks(self) -> AsyncIterator[str]:
        while True:
            while self._chunks:
                piece = self._chunks.popleft()
                self._size -= len(piece) + _PER_CHUNK
                self._room.set()
                yield piece
            if self._closed:
                return
            self._some.clear()
            await self._some.wait()


def empty() -> Pipe:
    pipe = Pipe()
    pipe.close()
    return pipe


@dataclass
class Streams:
    """Standard input, output and error of a command."""

    out: Write
    err: Write
    stdin: Pipe = field(default_factory=empty)


async def lines(chunks: AsyncIterator[str], allowance: Allowance) -> AsyncIterator[str]:
    """Whole lines without their ends; a very long one comes in pieces."""
    with allowance.holding() as hold:
        rest: list[str] = []
        size = 0
        async for chunk in chunks:
            await allowance.step(len(chunk))
            first, *others = chunk.split("\n")
            rest.append(first)
            size += len(first)
            hold(len(first))
            if not others and size < LONGEST_LINE:
                continue
            yield "".join(rest)
            hold(-size)
            for line in others[:-1]:
                await allowance.step()
                yield line
            rest, size = others[-1:], len("".join(others[-1:]))
            hold(size)
        if last := "".join(rest):
            yield last


async def decoded(pieces: AsyncIterator[bytes]) -> AsyncIterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    async for piece in pieces:
        yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)
