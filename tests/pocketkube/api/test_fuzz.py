"""Thousands of bad requests: never a 500, never a hang, never a write that is not what was answered."""

from __future__ import annotations

import asyncio
import json
import os
import random

import pytest

from apportion.cluster.transport import HttpRequest, Response
from pocketkube.api import initial_objects
from pocketkube.api.request_attributes import ADMIN
from pocketkube.api.server import ApiServer
from tests.pocketkube.api.fuzzing import GOOD, Fuzzer

SOAK = os.environ.get("APPORTION_SOAK") == "1"
ROUNDS = 50 if SOAK else 3
REQUESTS = 400
ALLOWED = {503, 504}  # no kubelet serves logs here; a version of the future


async def start() -> ApiServer:
    server = ApiServer()
    await initial_objects.prepare(server)
    for path, body in GOOD.items():
        await ask(
            server, HttpRequest("POST", path, (), {"content-type": "application/json"}, json.dumps(body).encode())
        )
    return server


async def ask(server: ApiServer, request: HttpRequest) -> Response:
    async with asyncio.timeout(30):
        response = await server.handle(request, ADMIN)
    close = getattr(response.stream, "aclose", None)
    if close is not None:
        await close()
    return response


@pytest.mark.soak
@pytest.mark.parametrize("number", range(ROUNDS))
async def test_nothing_that_is_sent_makes_the_server_fail_or_forget(number: int) -> None:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"APPORTION_SEED={seed} (round {number})")
    server = await start()
    fuzzer = Fuzzer(random.Random(seed + number), server)
    for _ in range(REQUESTS):
        request, first = fuzzer.request()
        if first is not None:
            await ask(server, first)
        response = await ask(server, request)
        told = f"seed {seed}: {request.method} {request.path} {request.query} {(request.body or b'')[:2000]!r}"
        assert response.status < 500 or response.status in ALLOWED, (told, response.body)
        if response.status >= 400:
            status = json.loads(response.body or b"")
            assert (status["kind"], status["code"]) == ("Status", response.status), told
        else:
            await check_written(server, request, response, told)
    assert len(server.watches) == 0
    await server.close()


async def check_written(server: ApiServer, request: HttpRequest, response: Response, told: str) -> None:
    """What a plain update answered is what a later read shows."""
    plain = request.method in ("PUT", "PATCH") and not {name for name, _ in request.query} & {"dryRun"}
    if not plain or response.body is None or "Table" in request.headers.get("accept", ""):
        return
    answered = json.loads(response.body)
    if answered.get("kind") in ("Scale", "Status") or "deletionTimestamp" in answered["metadata"]:
        return
    path = "/".join(request.path.split("/")[: request.path.count("/") + (0 if _has_part(request.path) else 1)])
    found = await ask(server, HttpRequest("GET", path))
    assert found.status == 200, told
    assert json.loads(found.body or b"")["metadata"] == answered["metadata"], told


def _has_part(path: str) -> bool:
    return not any(path.startswith(f"{good}/") and path.count("/") == good.count("/") + 1 for good in GOOD)
