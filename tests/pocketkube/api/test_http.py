"""The server on its socket: TLS, tokens, streams, warnings."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest

from apportion.apis import kinds
from apportion.cluster import errors
from apportion.cluster.client import Client, PatchType
from pocketkube.api.http import HttpShell
from pocketkube.api.server import ApiServer
from tests.pocketkube.api.conftest import TOKEN
from tests.pocketkube.api.direct_requests import config_map
from tests.pocketkube.api.waiting import until


async def test_the_ordinary_client_works_over_tls(remote: Client) -> None:
    await remote.create(kinds.CONFIG_MAPS, config_map("a"), namespace="default")
    await remote.patch(kinds.CONFIG_MAPS, "a", {"data": {"b": "2"}}, namespace="default", how=PatchType.merge)
    assert (await remote.get(kinds.CONFIG_MAPS, "a", namespace="default"))["data"] == {"a": "1", "b": "2"}
    await remote.delete(kinds.CONFIG_MAPS, "a", namespace="default")
    with pytest.raises(errors.NotFound):
        await remote.get(kinds.CONFIG_MAPS, "a", namespace="default")


async def test_events_stream_while_they_happen_and_a_client_that_leaves_is_forgotten(
    remote: Client, client: Client, server: ApiServer
) -> None:
    seen = asyncio.Event()

    async def follow() -> None:
        async for event in remote.watch(kinds.CONFIG_MAPS, namespace="default", resource_version="0"):
            if event.object is not None and event.object["metadata"].get("name") == "late":
                seen.set()

    follower = asyncio.create_task(follow())
    await until(lambda: len(server.watches) > 0)
    await client.create(kinds.CONFIG_MAPS, config_map("late"), namespace="default")
    async with asyncio.timeout(10):
        await seen.wait()
    follower.cancel()
    await asyncio.gather(follower, return_exceptions=True)
    await until(lambda: len(server.watches) == 0)


async def test_raw_requests_get_statuses_and_warnings(shell: HttpShell, tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"{shell.url}/api/v1/namespaces/default/configmaps"
    async with aiohttp.ClientSession(headers=headers) as session:
        body = {**config_map("w"), "one": 1, "two": 2}
        async with session.post(url, json=body, ssl=context) as answer:
            assert answer.status == 201
            assert len(answer.headers.getall("Warning")) == 2
        async with session.post(url, data=b"x" * (4 * 1024 * 1024), ssl=context) as answer:
            assert answer.status == 413
            assert (await answer.json())["reason"] == "RequestEntityTooLarge"
        async with session.get(f"{shell.url}/nonsense", ssl=context) as answer:
            assert (answer.status, (await answer.json())["kind"]) == (404, "Status")
        async with session.get(url, ssl=context, headers={"Authorization": "Bearer no"}) as answer:
            assert answer.status == 401
        async with session.get(url, ssl=context, params={"labelSelector": "a in (b,c),!d"}) as answer:
            assert answer.status == 200


async def test_stopping_ends_open_streams(server: ApiServer, shell: HttpShell, remote: Client) -> None:
    async def follow() -> None:
        async for _ in remote.watch(kinds.CONFIG_MAPS, namespace="default", resource_version="0"):
            pass

    follower = asyncio.create_task(follow())
    await until(lambda: len(server.watches) > 0)
    async with asyncio.timeout(10):
        await shell.stop()
        await asyncio.gather(follower, return_exceptions=True)
