"""A proxy between an agent's process and its API server that kills the process at one of its calls.

At call number `at` the process dies: either before the server has seen the call, or after the server has acted
and before the answer is back. From then on everything passes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "content-encoding", "host", "keep-alive"}


class KillingProxy:
    def __init__(self, upstream: str, session: aiohttp.ClientSession, *, at: int | None, after: bool) -> None:
        self.calls: list[str] = []
        self.cut: str | None = None
        self.kill: Callable[[], None] = lambda: None
        self.url = ""
        self._upstream = upstream
        self._session = session
        self._at = at
        self._after = after

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.calls.append(f"{request.method} {request.path_qs}")
        hit = len(self.calls) == self._at
        if hit and not self._after:
            return self._cut(request)
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP_BY_HOP}
        asked = self._session.request(
            request.method, self._upstream + request.path_qs, headers=headers, data=await request.read() or None
        )
        async with asked as answer:
            if hit:
                await answer.content.readany()
                return self._cut(request)
            return await _pass_on(request, answer)

    def _cut(self, request: web.Request) -> web.StreamResponse:
        self.cut = f"{request.method} {request.path_qs}"
        self.kill()
        if request.transport is not None:
            request.transport.close()
        return web.Response(status=503)


@asynccontextmanager
async def killing_proxy(upstream: str, *, at: int | None, after: bool = False) -> AsyncIterator[KillingProxy]:
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        proxy = KillingProxy(upstream, session, at=at, after=after)
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", proxy.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            proxy.url = "http://{}:{}".format(*runner.addresses[0][:2])
            yield proxy
        finally:
            await runner.cleanup()


async def _pass_on(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = {key: value for key, value in answer.headers.items() if key.lower() not in _HOP_BY_HOP}
    passed = web.StreamResponse(status=answer.status, headers=headers)
    await passed.prepare(request)
    async for chunk in answer.content.iter_any():
        await passed.write(chunk)
    await passed.write_eof()
    return passed
