"""The HTTP server that webhook and probes share: kept connections, errors, the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from apportion.cluster import probes
from apportion.cluster.serving.connections import Phase
from apportion.cluster.serving.limits import ServerLimits
from apportion.cluster.serving.messages import BadRequestError, Head, Response, text
from apportion.cluster.serving.server import HttpServer
from tests.environments.waiting import eventually


def check(head: Head) -> None:
    if head.path == "/no":
        raise BadRequestError(404, "there is no such path")


async def echo(head: Head, body: bytearray) -> Response:
    if head.path == "/fail":
        raise ZeroDivisionError
    if head.path == "/later":
        await asyncio.sleep(0.3)
    return text(200, f"{head.method} {head.path} {len(body)}")


@asynccontextmanager
async def serving(limits: ServerLimits | None = None) -> AsyncIterator[tuple[HttpServer, str]]:
    server = HttpServer(echo, check=check, limits=limits)
    port = await server.start("127.0.0.1", 0)
    try:
        yield server, f"http://127.0.0.1:{port}"
    finally:
        await server.stop(5)


async def test_r03_connections_are_kept_and_large_bodies_arrive_whole() -> None:
    async with serving() as (server, url), aiohttp.ClientSession() as session:
        for size in (0, 1, 70_000, 5_000_000):
            async with session.post(f"{url}/x?a=b", data=b"x" * size) as response:
                assert await response.text() == f"POST /x {size}\n"
        assert len(server.connections) == 1
        assert server.connections.held == 0


async def test_t02_an_error_of_ours_is_one_answer_and_no_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    async with serving() as (_, url), aiohttp.ClientSession() as session:
        for path, status in (("/fail", 500), ("/no", 404), ("/x", 200)):
            async with session.get(url + path) as response:
                assert response.status == status
    assert "/fail: internal error" in caplog.text


async def test_r02_a_request_in_progress_is_answered_when_the_server_stops() -> None:
    async with aiohttp.ClientSession() as session:
        async with serving() as (server, url):
            task = asyncio.create_task(_get(session, f"{url}/later"))
            await eventually(lambda: any(each.phase is Phase.ANSWERING for each in server.connections))
        assert await task == 200


async def test_t02_probes_answer_while_others_keep_their_connections_open() -> None:
    async with probes.serve("127.0.0.1:0", ready={"caches": lambda: "waiting"}) as address:
        host, port = address.split(":")
        held = [await asyncio.open_connection(host, int(port)) for _ in range(100)]
        async with aiohttp.ClientSession() as session:
            assert await _get(session, f"http://{address}/healthz") == 200
            assert await _get(session, f"http://{address}/readyz") == 503
            assert await _get(session, f"http://{address}/metrics") == 200
            assert await _get(session, f"http://{address}/elsewhere") == 404
            async with session.post(f"http://{address}/healthz", data=b"x") as response:
                assert response.status == 405
        for _, writer in held:
            writer.transport.abort()


async def _get(session: aiohttp.ClientSession, url: str) -> int:
    async with session.get(url) as response:
        await response.read()
        return response.status
