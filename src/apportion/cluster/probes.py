"""`/healthz`, `/readyz` and `/metrics` of a plane, on a small HTTP site. Rule R03."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import prometheus_client
from aiohttp import web
from aiohttp.typedefs import Handler

Check = Callable[[], bool | str]
"""True: healthy. False, or a text that says what is missing: not healthy."""


@asynccontextmanager
async def serve(
    listen: str,
    *,
    ready: Mapping[str, Check] | None = None,
    healthy: Mapping[str, Check] | None = None,
    registry: prometheus_client.CollectorRegistry = prometheus_client.REGISTRY,
) -> AsyncIterator[str]:
    """Serve while the block runs; gives back the address that was bound (port 0 picks a free one)."""
    app = web.Application()
    app.router.add_get("/healthz", _answer(healthy or {}))
    app.router.add_get("/livez", _answer(healthy or {}))
    app.router.add_get("/readyz", _answer(ready or {}))
    app.router.add_get("/metrics", _metrics(registry))
    host, port = address(listen)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, reuse_address=True).start()
        bound = runner.addresses[0]
        yield f"{bound[0]}:{bound[1]}"
    finally:
        await runner.cleanup()


def address(listen: str) -> tuple[str, int]:
    """`host:port`, `:port` (all interfaces) or `[v6]:port`."""
    host, _, port = listen.rpartition(":")
    if not port.isdigit():
        raise ValueError(f"{listen!r} is not a valid address: use host:port, for example 127.0.0.1:9401")
    return host.strip("[]") or "0.0.0.0", int(port)


def _answer(checks: Mapping[str, Check]) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        bad = {name: result for name, check in checks.items() if (result := check()) is not True}
        if not bad:
            return web.Response(text="ok\n")
        lines = [f"{name}: {result or 'not ready'}" for name, result in bad.items()]
        return web.Response(status=503, text="\n".join(lines) + "\n")

    return handler


def _metrics(registry: prometheus_client.CollectorRegistry) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        body = prometheus_client.generate_latest(registry)
        return web.Response(body=body, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})

    return handler
