"""The server on a socket: HTTPS on loopback, one thin handler around `ApiServer.handle`."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from aiohttp import web

from apportion.cluster.transport import HttpRequest, Response
from pocketkube.api import media_types, status
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

    async def start(self) -> None:
        runner = web.ServerRunner(
            web.Server(self._answer, keepalive_timeout=75, auto_decompress=True, handler_cancellation=True),
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
        except status.ApiStatus as problem:
            return _whole(Response(problem.code, {"content-type": media_types.JSON}, problem.encode()))
        # A client that leaves ends its stream, but no write half-way.
        response = await asyncio.shield(self._server.handle(request))
        if response.stream is None:
            return _whole(response)
        return await _streamed(incoming, response)


async def _read(incoming: web.BaseRequest) -> HttpRequest:
    body = bytearray()
    async for chunk in incoming.content.iter_any():
        body += chunk
        if len(body) > media_types.MAX_BODY:
            raise status.too_large(media_types.MAX_BODY)
    headers: dict[str, str] = {}
    for name, value in incoming.headers.items():
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return HttpRequest(
        incoming.method, incoming.url.path, tuple(incoming.query.items()), headers, bytes(body) if body else None
    )


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
