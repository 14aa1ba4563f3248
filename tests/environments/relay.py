"""Carries bytes between the machine and a sandbox.

The listening socket on the machine's loopback is made by the test run and handed down open; this process runs
in the sandbox's network and so reaches the API server there. TLS passes through untouched. It listens on the same
port inside the sandbox too, so that one kubeconfig serves on both sides.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys


async def main(listening: int, host: str, port: int) -> None:
    outside = socket.socket(fileno=listening)
    inside = socket.create_server(outside.getsockname())

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))

    servers = [await asyncio.start_server(carry, sock=sock) for sock in (outside, inside)]
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
