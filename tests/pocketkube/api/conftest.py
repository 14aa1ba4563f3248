"""A server per test, with the objects that every cluster has, and clients on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from apportion.apis import kinds
from apportion.cluster.certificates import Authority
from apportion.cluster.client import Client
from apportion.cluster.transport import HttpTransport
from pocketkube.api import initial_objects
from pocketkube.api.http import HttpShell
from pocketkube.api.in_process_transport import LocalTransport
from pocketkube.api.request_attributes import ADMIN
from pocketkube.api.server import ApiServer
from tests.pocketkube.api.direct_requests import DirectRequests

TOKEN = "the-admin"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    server = ApiServer()
    await initial_objects.prepare(server)
    server.tokens.add_fixed(TOKEN, ADMIN)
    async with Client(LocalTransport(server)) as client:
        await client.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace="default")
    yield server
    await server.close()


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    async with Client(LocalTransport(server)) as client:
        yield client


@pytest.fixture
def ask(server: ApiServer) -> DirectRequests:
    """Raw requests, for everything that a client library would not send."""
    return DirectRequests(server)


@pytest.fixture
async def shell(server: ApiServer, tmp_path: Path) -> AsyncIterator[HttpShell]:
    """The same server on a TLS socket."""
    authority = Authority.create("test")
    pair = authority.issue(["localhost"], ["127.0.0.1"], 1)
    (tmp_path / "ca.crt").write_bytes(authority.bundle)
    shell = HttpShell(server, pair.server_context())
    await shell.start()
    yield shell
    await shell.stop()


@pytest.fixture
async def remote(shell: HttpShell, tmp_path: Path) -> AsyncIterator[Client]:
    import ssl

    async def credentials() -> dict[str, str]:
        return {"authorization": f"Bearer {TOKEN}"}

    context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    async with Client(HttpTransport(shell.url, tls=context, credentials=credentials)) as client:
        yield client
