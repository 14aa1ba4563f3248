"""The server on a socket: HTTPS on loopback, one thin handler around `ApiServer.handle`.

A request is looked at only when it is there completely, within limits of size and time, so that slow clients hold
nothing but their connection. Compressed bodies are not unpacked, as in kube-apiserver.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from apportion.cluster.transport import HttpRequest, Response
from pocketkube.api import limits, media_types, status
from pocketkube.api.server import ApiServer

_WARNING = "warning"


class HttpShell:
    """Serves an ApiServer. `port` is known after `start` (0 chooses a free one)."""

    def __init__(
        self, server: ApiServer, tls: ssl.SSLContext | None, *, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self._server = server
        self._tls = tls
        self._host = host
        self.port = port
        self._runner: web.ServerRunner | None = None
        self._waiting = 0

    async def start(self) -> None:
        runner = web.ServerRunner(
            _BoundedServer(
                self._answer,
                keepalive_timeout=limits.IDLE_SECONDS,
                auto_decompress=False,
                handler_cancellation=True,
                max_line_size=limits.MAX_LINE,
                max_field_size=limits.MAX_LINE,
            ),
            shutdown_timeout=1,
        )
        await runner.setup()
        site = web.TCPSite(runner, self._host, self.port, ssl_context=self._tls, backlog=1024)
        await site.start()
        self._runner = runner
        self.port = runner.addresses[0][1]

    async def stop(self) -> None:
        await self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self._host}:{self.port}"

    async def _answer(self, incoming: web.BaseRequest) -> web.StreamResponse:
        try:
            request = await _read(incoming)
            response = await self._handle(request)
        except status.ApiStatus as problem:
            headers = {"content-type": media_types.JSON, **problem.headers}
            return _whole(Response(problem.code, headers, problem.encode()))
        if response.stream is None:
            return _whole(response)
        return await _streamed(incoming, response)

    async def _handle(self, request: HttpRequest) -> Response:
        if self._waiting >= limits.MAX_WAITING:
            raise status.too_many_requests("Too many requests, please try again later.", retry_after=1)
        self._waiting += 1

        async def handle() -> Response:
            try:
                async with self._server.turns.request(len(request.body or b"")):
                    return await self._server.handle(request)
            finally:
                self._waiting -= 1

        # A client that leaves ends its stream, but no write half-way.
        return await asyncio.shield(asyncio.create_task(handle()))


class _BoundedServer(web.Server):
    """Closes connections above a limit as soon as they are made."""

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self.connections) > limits.MAX_CONNECTIONS:
            transport.abort()


async def _read(incoming: web.BaseRequest) -> HttpRequest:
    length = incoming.content_length
    if length is not None and length > limits.MAX_BODY:
        raise status.too_large(limits.MAX_BODY)
    headers: dict[str, str] = {}
    for name, value in incoming.headers.items():
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    try:
        async with asyncio.timeout(limits.BODY_SECONDS):
            body = await _body(incoming)
    except TimeoutError:
        raise status.body_timeout() from None
    path, query = incoming.url.path, tuple(incoming.query.items())
    return HttpRequest(incoming.method, path, query, headers, body or None)


async def _body(incoming: web.BaseRequest) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for chunk in incoming.content.iter_any():
        parts.append(chunk)
        size += len(chunk)
        if size > limits.MAX_BODY:
            raise status.too_large(limits.MAX_BODY)
    return b"".join(parts)


def _whole(response: Response) -> web.Response:
    answer = web.Response(status=response.status, body=response.body or b"")
    _set_headers(answer, response)
    return answer


async def _streamed(incoming: web.BaseRequest, response: Response) -> web.StreamResponse:
    answer = web.StreamResponse(status=response.status)
    _set_headers(answer, response)
    answer.enable_chunked_encoding()
    stream = response.stream
    assert stream is not None
    try:
        await answer.prepare(incoming)
        async for chunk in stream:
            await answer.write(chunk)
        with suppress(ConnectionError):
            await answer.write_eof()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
    return answer


def _set_headers(answer: web.StreamResponse, response: Response) -> None:
    for name, value in response.headers.items():
        if name == _WARNING:
            for line in value.split("\n"):
                answer.headers.add("Warning", line)
        else:
            answer.headers[name] = value
    answer.headers.setdefault("Cache-Control", "no-cache, private")
