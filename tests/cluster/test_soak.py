"""Informers behind a network that breaks in every way: they converge to the server's state and leak nothing.

`APPORTION_SOAK=1` plays 1,000 rounds, each with its own seed; otherwise a few.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from apportion.apis.kinds import CONFIG_MAPS
from apportion.apis.meta import Bare
from apportion.cluster import credentials, errors
from apportion.cluster import informer as informers
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.cluster.transport import HttpTransport
from pocketkube.api import initial_objects
from pocketkube.api.http import HttpShell
from pocketkube.api.request_attributes import ADMIN
from pocketkube.api.server import ApiServer
from tests.cluster.faulty_proxy import FaultyProxy, proxied

ROUNDS = 1000 if os.environ.get("APPORTION_SOAK") == "1" else 8
FIRST_SEED = int(os.environ.get("APPORTION_SEED", "0"))
TOKEN = "admin"


def connection(port: int) -> HttpTransport:
    return HttpTransport(f"http://127.0.0.1:{port}", credentials=credentials.fixed(f"Bearer {TOKEN}"))


@asynccontextmanager
async def api() -> AsyncIterator[int]:
    server = ApiServer()
    server.tokens.add_fixed(TOKEN, ADMIN)
    await initial_objects.prepare(server)
    shell = HttpShell(server, None)
    await shell.start()
    try:
        yield shell.port
    finally:
        await shell.stop()


@pytest.mark.soak
@pytest.mark.timeout(7200)
async def test_informers_converge_whatever_the_network_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informers, "FIRST_BACKOFF_SECONDS", 0.01)
    monkeypatch.setattr(informers, "LONGEST_BACKOFF_SECONDS", 0.1)
    async with api() as port, Client(connection(port)) as client:
        await play(client, port, FIRST_SEED)
        before = inventory()
        for seed in range(FIRST_SEED, FIRST_SEED + ROUNDS):
            await play(client, port, seed)
            if ROUNDS > 100 and seed % 50 == 0:
                print(f"seed {seed} of {FIRST_SEED + ROUNDS}", flush=True)
        assert await settled(before), f"left behind: {inventory()} against {before}"


async def play(client: Client, port: int, seed: int) -> None:
    """One run: changes on one side, an informer behind a bad network on the other, and then no more faults."""
    draw = random.Random(seed)
    alive: dict[str, str] = {}

    def listen(old: Bare | None, new: Bare | None) -> None:
        subject = new or old
        assert subject is not None
        assert alive.get(subject.metadata.name) == (old.metadata.uid if old else None), f"seed {seed}"
        if new is None:
            del alive[subject.metadata.name]
        else:
            alive[subject.metadata.name] = new.metadata.uid

    namespace = "default"
    async with proxied(port, seed) as proxy, Client(connection(proxy.port), timeout=2) as shaky:
        informer = Informer(shaky, CONFIG_MAPS, into=Bare, namespace=namespace, labels="soak=yes", watch_seconds=1)
        informer.on_change(listen)
        task = asyncio.create_task(informer.run())
        try:
            await change(client, namespace, draw, proxy)
            proxy.rate = 0.0
            await agreed(client, namespace, informer, seed)
            assert alive == {item.metadata.name: item.metadata.uid for item in informer.items()}
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def change(client: Client, namespace: str, draw: random.Random, proxy: FaultyProxy) -> None:
    for _ in range(25):
        name = f"m{draw.randrange(5)}"
        try:
            if draw.random() < 0.4:
                await client.delete(CONFIG_MAPS, name, namespace=namespace)
            else:
                body = {"metadata": {"name": name, "labels": {"soak": "yes"}}, "data": {"n": str(draw.random()) * 20}}
                await client.apply(CONFIG_MAPS, body, namespace=namespace, field_manager="soak")
        except errors.NotFound:
            pass
        if draw.random() < 0.1:
            proxy.cut_all()
        await asyncio.sleep(draw.choice([0, 0, 0.002, 0.01]))


async def agreed(client: Client, namespace: str, informer: Informer[Bare], seed: int) -> None:
    listing = await client.list(CONFIG_MAPS, namespace=namespace, labels="soak=yes", into=Bare)
    wanted = {(item.metadata.name, item.metadata.resource_version) for item in listing.items}
    try:
        async with asyncio.timeout(30):
            while {(i.metadata.name, i.metadata.resource_version) for i in informer.items()} != wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"seed {seed}: the informer has {informer.items()}, the server {wanted}")


def inventory() -> tuple[int, int]:
    """Running tasks and open files of this process."""
    gc.collect()
    return len(asyncio.all_tasks()), len(list(Path("/proc/self/fd").iterdir()))


async def settled(before: tuple[int, int]) -> bool:
    """Closing takes a moment; a leak does not go away."""
    for _ in range(200):
        tasks, files = inventory()
        if tasks <= before[0] and files <= before[1]:
            return True
        await asyncio.sleep(0.05)
    return False
