"""Clients that do not do what clients should: they stop in the middle, at any stage of a connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

HEAD = b"POST /mutate-slices HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


class SlowClient:
    """A connection over which some bytes were sent, and no more come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int, context: ssl.SSLContext | None, name: str, sent: bytes = b"") -> SlowClient:
        server_name = name if context else None
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=server_name)
        writer.write(sent)
        await writer.drain()
        return cls(reader, writer)

    def answered(self) -> bool:
        """Something came back, or the connection was closed."""
        return bool(self.reader._buffer) or self.reader.at_eof()  # type: ignore[attr-defined]

    async def status(self) -> int:
        """Of the answer; 0 if the connection was closed without one."""
        try:
            line = await asyncio.wait_for(self.reader.readline(), 30)
        except OSError:
            return 0
        return int(line.split()[1]) if line else 0

    def close(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def slow_clients(
    count: int, port: int, context: ssl.SSLContext | None, name: str, sent: bytes = b""
) -> AsyncIterator[list[SlowClient]]:
    clients = [await SlowClient.open(port, context, name, sent) for _ in range(count)]
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


def body_of(length: int, sent: int) -> bytes:
    """A head that announces a body, and the beginning of the body."""
    return HEAD + b"Content-Length: %d\r\n\r\n" % length + b"x" * sent
