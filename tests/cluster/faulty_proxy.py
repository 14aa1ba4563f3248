"""A proxy on loopback between a client and an API that breaks connections in every way that networks do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n%s"
STATUS = b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"%s","code":%d}'


class FaultyProxy:
    """Forwards bytes to `port`; each connection meets a random fault with probability `rate`."""

    def __init__(self, port: int, seed: int, *, rate: float = 0.5) -> None:
        self._port = port
        self._draw = random.Random(seed)
        self.rate = rate
        self.port = 0
        self.faults = 0
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()
        finally:
            self._writers.discard(writer)
            writer.close()

    def cut_all(self) -> None:
        """Every open connection is reset at once."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fault = self._draw.choice(FAULTS) if self._draw.random() < self.rate else "none"
        self.faults += fault != "none"
        if fault == "refuse":
            writer.transport.abort()
            return
        if fault in CANNED:
            await reader.readuntil(b"\r\n\r\n")
            code, reason, extra = CANNED[fault]
            body = STATUS % (reason, code)
            writer.write(HEAD % (b"%d X" % code, len(body), extra, body))
            await writer.drain()
            return
        onwards = await asyncio.open_connection("127.0.0.1", self._port)
        allowed = self._draw.randrange(0, 3000) if fault in {"reset", "hang", "end"} else None
        pump = asyncio.create_task(_copy(reader, onwards[1], None))
        try:
            await _copy(onwards[0], writer, allowed, slow=fault == "slow")
            if fault == "hang":
                await reader.read()  # half-open: no data and no reset
            elif fault == "reset":
                writer.transport.abort()
        finally:
            pump.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await pump
            onwards[1].close()


FAULTS = ("refuse", "reset", "reset", "end", "slow", "hang", "gone", "busy", "unavailable", "error")
CANNED = {
    "gone": (410, b"Expired", b""),
    "busy": (429, b"TooManyRequests", b"Retry-After: 0\r\n"),
    "unavailable": (503, b"ServiceUnavailable", b"Retry-After: 0\r\n"),
    "error": (500, b"InternalError", b""),
}


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, allowed: int | None, *, slow: bool = False
) -> None:
    """Until the end, or until `allowed` bytes have passed."""
    while data := await reader.read(64 if slow else 65536):
        if allowed is not None:
            data, allowed = data[:allowed], allowed - len(data)
        writer.write(data)
        await writer.drain()
        if slow:
            await asyncio.sleep(0.0005)
        if allowed is not None and allowed <= 0:
            return


@asynccontextmanager
async def proxied(port: int, seed: int) -> AsyncIterator[FaultyProxy]:
    proxy = FaultyProxy(port, seed)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        proxy.cut_all()
        server.close()
        await server.wait_closed()
