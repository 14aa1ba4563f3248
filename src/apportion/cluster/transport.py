"""One HTTP exchange with a Kubernetes API, as data: the interface between clients and servers.

`Client` speaks only through a `Transport`. `HttpTransport` carries requests over a socket; a server in
the same process can answer the very same `Request` with the very same `Response` and no socket at all.

Header names are lower case in both types, and `Request.path` is not percent-encoded.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import aiohttp
from yarl import URL

from apportion.cluster import errors

CONNECT_SECONDS = 10.0
Credentials = Callable[[], Awaitable[Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What a client asks: a method, a decoded path, query pairs, headers and a body."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(slots=True)
class Response:
    """What a server answers: either a whole body, or a stream of chunks (watches, followed logs)."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    stream: AsyncIterator[bytes] | None = None


class Transport(Protocol):
    """Something that carries a request to a server and brings back its response."""

    async def send(self, request: HttpRequest, *, stream: bool = False, timeout: float | None = None) -> Response:  # noqa: ASYNC109
        """Answer with a whole body, or (`stream=True`, status below 400) with a stream.

        `timeout` bounds a whole exchange; of a stream it bounds each silence.
        """

    async def close(self) -> None:
        """Release sockets; further use is an error."""


class HttpTransport:
    """Requests over aiohttp, with one connection pool.

    The session is made at first use so that a transport can be built outside a running loop.
    `credentials` is asked before every request: tokens are re-read and exec plugins refreshed there.
    """

    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
        connections: int = 256,
        server_hostname: str | None = None,
    ) -> None:
        self._root = server.rstrip("/")
        self._tls = tls
        self._credentials = credentials
        self._connections = connections
        self._server_hostname = server_hostname
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: HttpRequest, *, stream: bool = False, timeout: float | None = None) -> Response:  # noqa: ASYNC109
        headers = dict(request.headers)
        if self._credentials is not None:
            headers.update(await self._credentials())
        limits = aiohttp.ClientTimeout(
            total=None if stream else timeout,
            sock_connect=CONNECT_SECONDS,
            sock_read=timeout if stream else None,
        )
        try:
            response = await self._open().request(
                request.method,
                URL(self._root + request.path).with_query(list(request.query)),
                data=request.body,
                headers=headers,
                timeout=limits,
                ssl=self._tls if self._tls is not None else True,
                server_hostname=self._server_hostname,
                allow_redirects=False,
            )
            received = {name.lower(): value for name, value in response.headers.items()}
            if stream and response.status < 400:  # noqa: PLR2004
                return Response(response.status, received, stream=_chunks(response))
            async with response:
                return Response(response.status, received, body=await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.Unreachable(_describe(self._root, error)) from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self._connections,
                keepalive_timeout=30,
                enable_cleanup_closed=True,
                socket_factory=_socket,
            )
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=True)
        return self._session


def _socket(info: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that notices within half a minute that the other machine is gone, also while nothing is sent."""
    family, kind, protocol, _, _ = info
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


async def _chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The body as it arrives; closing the iterator closes the connection."""
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise errors.Unreachable(f"the connection was interrupted: {error or type(error).__name__}") from error
    finally:
        with suppress(asyncio.CancelledError):
            response.close()


def _describe(server: str, error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return f"{server} is not reachable: {text}"
