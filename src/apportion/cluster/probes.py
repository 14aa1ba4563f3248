"""`/healthz`, `/readyz` and `/metrics` of a plane, on a small HTTP site. Rule R03."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import prometheus_client

from apportion.cluster.serving.limits import ServerLimits
from apportion.cluster.serving.messages import BadRequestError, Head, Response, text
from apportion.cluster.serving.server import HttpServer

Check = Callable[[], bool | str]
"""True: healthy. False, or a text that says what is missing: not healthy."""
Answer = Callable[[], Response]
LIMITS = ServerLimits(connections=64, body_bytes=0, held_bytes=0)
"""Anybody on the network can reach probes, too."""


@asynccontextmanager
async def serve(
    listen: str,
    *,
    ready: Mapping[str, Check] | None = None,
    healthy: Mapping[str, Check] | None = None,
    registry: prometheus_client.CollectorRegistry = prometheus_client.REGISTRY,
) -> AsyncIterator[str]:
    """Serve while the block runs; gives back the address that was bound (port 0 picks a free one)."""
    answers: dict[str, Answer] = {
        "/healthz": lambda: _checked(healthy or {}),
        "/livez": lambda: _checked(healthy or {}),
        "/readyz": lambda: _checked(ready or {}),
        "/metrics": lambda: _metrics(registry),
    }

    def check(head: Head) -> None:
        if head.path not in answers:
            raise BadRequestError(404, "there is no such path")
        if head.method != "GET":
            raise BadRequestError(405, "use GET")

    async def handle(head: Head, _: bytearray) -> Response:
        return answers[head.path]()

    host, port = address(listen)
    server = HttpServer(handle, check=check, limits=LIMITS)
    bound = await server.start(host, port)
    try:
        yield f"{host}:{bound}"
    finally:
        await server.stop(1)


def address(listen: str) -> tuple[str, int]:
    """`host:port`, `:port` (all interfaces) or `[v6]:port`."""
    host, _, port = listen.rpartition(":")
    if not port.isdigit():
        raise ValueError(f"{listen!r} is not a valid address: use host:port, for example 127.0.0.1:9401")
    return host.strip("[]") or "0.0.0.0", int(port)


def _checked(checks: Mapping[str, Check]) -> Response:
    bad = {name: result for name, check in checks.items() if (result := check()) is not True}
    if not bad:
        return text(200, "ok")
    return text(503, "\n".join(f"{name}: {result or 'not ready'}" for name, result in bad.items()))


def _metrics(registry: prometheus_client.CollectorRegistry) -> Response:
    return Response(
        body=prometheus_client.generate_latest(registry), content_type=prometheus_client.CONTENT_TYPE_LATEST
    )
