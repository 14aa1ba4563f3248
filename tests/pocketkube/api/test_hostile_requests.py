"""T02: thousands of hostile requests over sockets, while other clients go on working.

The server is a process of its own. In the full run the latency of the other clients and the server's memory are
measured; the short run counts answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from yarl import URL

from tests.environments.embedded import Embedded
from tests.pocketkube.api.direct_requests import config_map
from tests.pocketkube.api.hostile import Attack, Hostile

SOAK = os.environ.get("APPORTION_SOAK") == "1"
REQUESTS = int(os.environ.get("APPORTION_HOSTILE", "0")) or (20_000 if SOAK else 300)
CLIENTS = 8
OVERLOAD = {429, 503, 504}
TOO_LARGE = "etcdserver: request is too large"  # kube-apiserver answers this with code 500
LARGEST_GROWTH = 1.5
LONGEST_SECONDS = 1.0


@dataclass
class Outcome:
    codes: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)


@pytest.mark.soak
async def test_t02_hostile_requests_stop_nobody(tmp_path: Path) -> None:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"APPORTION_SEED={seed}")
    cluster = Embedded(tmp_path)
    try:
        async with _session(yaml.safe_load(cluster.kubeconfig.read_text())) as session:
            await _warm_up(session)
            before, outcome = _memory(cluster.pid), Outcome()
            over = asyncio.Event()
            others = [asyncio.create_task(_behave(session, f"other-{number}", outcome, over)) for number in range(2)]
            await asyncio.gather(*(_attack(session, seed + client, outcome) for client in range(CLIENTS)))
            over.set()
            await asyncio.gather(*others)
            await session.delete("/api/v1/namespaces/hostile")
            after = await _settled_memory(cluster.pid, before)
    finally:
        cluster.close()
    latency = sorted(outcome.latencies)[int(len(outcome.latencies) * 0.99)]
    print(f"{REQUESTS} requests: {dict(outcome.codes)}")
    print(
        f"p99 of {len(outcome.latencies)} requests of others: {latency:.3f} s; {before} MiB before, {after} MiB after"
    )
    assert not outcome.failures, outcome.failures[:5]
    assert sum(outcome.codes.values()) == REQUESTS // CLIENTS * CLIENTS
    assert len(outcome.latencies) > 8
    if SOAK:
        assert latency < LONGEST_SECONDS
        assert after < LARGEST_GROWTH * before


async def _attack(session: aiohttp.ClientSession, seed: int, outcome: Outcome) -> None:
    hostile = Hostile(seed, "hostile")
    for _ in range(REQUESTS // CLIENTS):
        attack = hostile.attack()
        code, text = await _sent(session, attack)
        outcome.codes[code] += 1
        if code >= 500 and code not in OVERLOAD and TOO_LARGE not in text:
            outcome.failures.append(f"{attack.method} {attack.path[:200]} {attack.body[:300]!r}: {code} {text[:500]}")


async def _sent(session: aiohttp.ClientSession, attack: Attack) -> tuple[int, str]:
    """Code and text of the answer; 0 where the connection was closed without one, as slow clients close it."""
    body = _unfinished(attack.body) if attack.slow else attack.body or None
    limit = aiohttp.ClientTimeout(total=0.5 if attack.slow else 120)
    try:
        url = URL(attack.path, encoded=True)
        async with session.request(attack.method, url, data=body, headers=attack.headers, timeout=limit) as answer:
            return answer.status, (await answer.text(errors="replace"))
    except (TimeoutError, aiohttp.ClientError):
        if not attack.slow and len(attack.headers) < 50:
            raise
        return 0, ""


async def _unfinished(body: bytes) -> AsyncIterator[bytes]:
    yield body
    await asyncio.sleep(60)


async def _behave(session: aiohttp.ClientSession, name: str, outcome: Outcome, over: asyncio.Event) -> None:
    """Another client, whose requests must be answered, correctly and soon."""
    await session.post("/api/v1/namespaces", json={"metadata": {"name": name}})
    maps = f"/api/v1/namespaces/{name}/configmaps"
    number = 0
    while not over.is_set():
        number += 1
        steps = (("POST", maps, config_map(f"m{number}"), 201), ("GET", maps, None, 200))
        for method, path, body, code in (*steps, ("DELETE", f"{maps}/m{number}", None, 200)):
            begun = time.monotonic()
            async with session.request(method, path, json=body) as answer:
                text = await answer.text()
            outcome.latencies.append(time.monotonic() - begun)
            if answer.status != code or (method == "GET" and len(json.loads(text)["items"]) != 2):
                outcome.failures.append(f"{method} {path}: {answer.status} {text[:300]}")
        await asyncio.sleep(0.05)


async def _warm_up(session: aiohttp.ClientSession) -> None:
    """What any client causes: documents, tables, one object of each kind."""
    for path in ("/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1", "/apis", "/api/v1"):
        async with session.get(path) as answer:
            await answer.read()
    await session.post("/api/v1/namespaces", json={"metadata": {"name": "hostile"}})
    for _ in range(100):
        async with session.get("/api/v1/namespaces/hostile/serviceaccounts/default") as answer:
            if answer.status == 200:
                break
        await asyncio.sleep(0.1)
    hostile = Hostile(0, "hostile", rarity=10**9)
    for _ in range(100):
        await _sent(session, hostile.wrong_types())
    await session.post("/api/v1/namespaces/hostile/configmaps", json=config_map("x"))
    pod = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await session.post("/api/v1/namespaces/hostile/pods", json=pod)


@contextlib.asynccontextmanager
async def _session(content: dict[str, Any]) -> AsyncIterator[aiohttp.ClientSession]:
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    connector = aiohttp.TCPConnector(ssl=tls, limit=100)
    headers = {"Authorization": f"Bearer {user['token']}"}
    async with aiohttp.ClientSession(cluster["server"], connector=connector, headers=headers) as session:
        yield session


def _memory(pid: int) -> int:
    """Resident memory of a process, in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024**2


async def _settled_memory(pid: int, before: int) -> int:
    """After the objects of the hostile namespace are gone."""
    for _ in range(60):
        if (found := _memory(pid)) < LARGEST_GROWTH * before:
            break
        await asyncio.sleep(0.5)
    return found
