"""Accepts connections, reads requests within limits and deadlines, and answers.

The handler is called only when the whole body is there. Until then a request takes nothing but its bytes, which are
counted over all connections. A request that is not valid gets an answer with the reason.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

from apportion.cluster.serving.connections import Connection, Connections, Phase
from apportion.cluster.serving.limits import ServerLimits
from apportion.cluster.serving.messages import END_OF_HEAD, BadRequestError, Head, Response, parse_head, text

log = logging.getLogger(__name__)

BACKLOG = 1024
CHUNK_BYTES = 64 * 1024

Tls = Callable[[], ssl.SSLContext]
"""The context for the next connection: certificates and client CAs change while a server runs."""
Check = Callable[[Head], None]
"""Raises BadRequestError for what can be refused before the body is read: an unknown path, a wrong type."""
Handler = Callable[[Head, bytearray], Awaitable[Response]]


class HttpServer:
    """Serves one handler on one address."""

    def __init__(
        self, handler: Handler, *, check: Check, limits: ServerLimits | None = None, tls: Tls | None = None
    ) -> None:
        self._handler = handler
        self._check = check
        self._limits = limits or ServerLimits()
        self._tls = tls
        self._connections = Connections(self._limits.connections, self._limits.held_bytes)
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def connections(self) -> Connections:
        return self._connections

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which is selected by the system if 0 was given."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._listener.setblocking(False)  # noqa: FBT003
        self._accepting = asyncio.create_task(self._accept(self._listener))
        return int(self._listener.getsockname()[1])

    async def stop(self, seconds: float) -> None:
        """Take no more connections, complete the requests that have arrived, and close."""
        self._stopping = True
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        if self._listener is not None:
            self._listener.close()
        for connection in self._connections:
            if connection.phase is not Phase.ANSWERING:
                self._connections.remove(connection)
                connection.give_up("the server stops")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listener)
            except OSError as error:  # out of file descriptors, or a client that has gone
                log.debug("cannot accept a connection: %s", error)
                await asyncio.sleep(0.05)
                continue
            connection = Connection(str(address[0]))
            if not self._connections.add(connection):
                accepted.close()
                continue
            task = asyncio.create_task(self._run(connection, accepted))
            connection.task = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, connection: Connection, accepted: socket.socket) -> None:
        stream: _Stream | None = None
        try:
            stream = await self._open(accepted)
            while await self._exchange(connection, stream):
                pass
            await self._finish(stream)
        except asyncio.CancelledError:
            if not connection.given_up:
                raise
        except (OSError, EOFError, TimeoutError, ssl.SSLError):
            pass  # the client went away, or never came to an end
        finally:
            self._connections.remove(connection)
            if stream is not None:
                stream.writer.transport.abort()
            accepted.close()

    async def _open(self, accepted: socket.socket) -> _Stream:
        loop = asyncio.get_running_loop()
        accepted.setblocking(False)  # noqa: FBT003
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = asyncio.StreamReader(limit=self._limits.head_bytes)
        protocol = asyncio.StreamReaderProtocol(reader)
        if self._tls is None:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted)
        else:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=self._tls(),
                ssl_handshake_timeout=self._limits.handshake_seconds,
                ssl_shutdown_timeout=1.0,
            )
        return _Stream(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def _exchange(self, connection: Connection, stream: _Stream) -> bool:
        """One request and its answer; False if the connection ends with it."""
        try:
            head, body = await self._read(connection, stream)
            connection.enter(Phase.ANSWERING)
            response = await self._handle(head, body)
        except BadRequestError as error:
            await self._turn_away(connection, stream, text(error.status, str(error)))
            return False
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not connection.given_up or connection not in self._connections or task is None:
                raise
            task.uncancel()
            await self._turn_away(connection, stream, text(503, f"{connection.given_up}; try again"))
            return False
        self._connections.release(connection)
        close = self._stopping or not head.keep_alive
        await self._send(stream, response.encode(close=close))
        connection.enter(Phase.IDLE)
        return not close

    async def _handle(self, head: Head, body: bytearray) -> Response:
        try:
            return await self._handler(head, body)
        except Exception:
            log.exception("%s: internal error", head.path)
            return text(500, "internal error, see the log")

    async def _read(self, connection: Connection, stream: _Stream) -> tuple[Head, bytearray]:
        """The next request, complete. Raises BadRequestError, or EOFError where the client ends the connection."""
        reader, limits = stream.reader, self._limits
        first = b""
        if connection.phase is Phase.IDLE:
            async with asyncio.timeout(limits.idle_seconds):
                first = await reader.readexactly(1)
            connection.enter(Phase.READING)
        try:
            async with asyncio.timeout(limits.read_seconds):
                raw = first + await reader.readuntil(END_OF_HEAD)
        except asyncio.LimitOverrunError:
            raise BadRequestError(431, f"the head of the request is larger than {limits.head_bytes} bytes") from None
        except TimeoutError:
            raise BadRequestError(408, f"timeout: no request within {limits.read_seconds:g} s") from None
        head = parse_head(raw[: -len(END_OF_HEAD)])
        self._check(head)
        length = head.length(limits.body_bytes)
        if head.headers.get("expect", "").lower() == "100-continue":
            await self._send(stream, b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            async with asyncio.timeout(limits.read_seconds):
                return head, await self._body(connection, reader, length)
        except TimeoutError:
            raise BadRequestError(408, f"timeout: the body did not arrive within {limits.read_seconds:g} s") from None

    async def _body(self, connection: Connection, reader: asyncio.StreamReader, length: int) -> bytearray:
        """Bytes are counted as they arrive, never as they are announced."""
        body = bytearray()
        while len(body) < length:
            part = await reader.read(min(length - len(body), CHUNK_BYTES))
            if not part:
                raise EOFError
            if not self._connections.hold(connection, len(part)):
                raise BadRequestError(503, "too many large requests; try again")
            body += part
        return body

    async def _turn_away(self, connection: Connection, stream: _Stream, response: Response) -> None:
        """Answer, and read what is still sent for a moment: a connection closed at once would lose the answer."""
        self._connections.release(connection)
        connection.enter(Phase.READING)
        await self._send(stream, response.encode(close=True))
        async with asyncio.timeout(self._limits.linger_seconds):
            while await stream.reader.read(CHUNK_BYTES):
                pass

    async def _finish(self, stream: _Stream) -> None:
        """Close once everything is sent."""
        stream.writer.close()
        async with asyncio.timeout(self._limits.linger_seconds):
            await stream.writer.wait_closed()

    async def _send(self, stream: _Stream, data: bytes) -> None:
        stream.writer.write(data)
        async with asyncio.timeout(self._limits.read_seconds):
            await stream.writer.drain()


class _Stream:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
