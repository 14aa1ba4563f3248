"""Thousands of hostile requests at a running webhook, and a client that must not notice them (T02)."""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from apportion import manifests
from apportion.apis import names
from apportion.apis.custom_resources import crds
from tests.admission.reviews import review
from tests.builders.pods import fallback_pod
from tests.environments.embedded import Embedded
from tests.environments.waiting import until

FULL = os.environ.get("APPORTION_SOAK") == "1"
REQUESTS = 10_000 if FULL else 300
HOST = "gpu-webhook.gpu-webhook.svc"
LIMIT_MIB = 384
OVERLOADED = 503
ROOT = Path(__file__).parents[3]


@pytest.fixture
def webhook(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, Path]]:
    """A webhook with all rules, beside an embedded cluster: the process, its port, and its log."""
    cluster = Embedded(tmp_path, "--bare", "--nodes", "1")
    try:
        wanted = [entry for entry in manifests.load("fallback") if entry["kind"] in {"Namespace", WEBHOOKS}]
        spaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in ("greedy", names.DAS_NAMESPACE)
        ]
        for entry in [*crds.crds(), *spaces, *wanted]:
            cluster.api.create(PATHS[entry["kind"]], entry)
        log = tmp_path / "webhook.log"
        command = [sys.executable, "-m", "tests.admission.fallback.killable_webhook", "--listen", "127.0.0.1:0"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", "--", *command, "--serve", "slices,guard,fallback"],
                cwd=ROOT,
                env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig)},
                stdout=output,
                stderr=output,
            )
        try:
            port = until(lambda: ready_port(log), "the webhook is ready", within=60)
            assert port is not None
            yield process, port, log
        finally:
            process.kill()
            process.wait(timeout=10)
    finally:
        cluster.close()


WEBHOOKS = "MutatingWebhookConfiguration"
PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Namespace": "/api/v1/namespaces",
    WEBHOOKS: "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
}


def ready_port(log: Path) -> int | None:
    line = next((line for line in log.read_text().splitlines() if line.startswith("ready ")), None)
    return int(line.rpartition(":")[2]) if line else None


class Neighbour:
    """A client that behaves: one review after the other, on kept and on new connections."""

    def __init__(self, port: int) -> None:
        self._url = f"https://127.0.0.1:{port}"
        self.seconds: list[float] = []
        self.statuses: Counter[int] = Counter()

    async def run(self, until: asyncio.Event) -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as kept:
            while not until.is_set():
                for path in ("/mutate-slices", "/validate", "/mutate-fallback"):
                    await self._ask(kept, path)
                async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as fresh:
                    await self._ask(fresh, "/mutate-slices")
                await asyncio.sleep(0.02)

    async def _ask(self, session: aiohttp.ClientSession, path: str) -> None:
        pod = fallback_pod(name="fine", limits={"nvidia.com/mig-1g.5gb": 1})
        began = time.perf_counter()
        async with session.post(self._url + path, json=review(pod, dryRun=True)) as response:
            answer: dict[str, Any] = json.loads(await response.read())
        self.seconds.append(time.perf_counter() - began)
        self.statuses[response.status if answer["response"]["allowed"] else -1] += 1


@pytest.mark.soak
@pytest.mark.timeout(7200)
async def test_t02_hostile_requests_disturb_nobody(webhook: tuple[subprocess.Popen[bytes], int, Path]) -> None:
    process, port, log = webhook
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    neighbour = Neighbour(port)
    ended = asyncio.Event()
    asking = asyncio.create_task(neighbour.run(ended))
    await asyncio.sleep(2)
    before = resident(process.pid)
    attack = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.admission.hostile.attack", str(port), HOST, str(seed), str(REQUESTS)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await attack.communicate()
    ended.set()
    await asking
    statuses = {int(status): count for status, count in json.loads(said).items()}
    after, peak = resident(process.pid), resident(process.pid, "VmHWM")
    p99 = statistics.quantiles(neighbour.seconds, n=100)[98]
    print(
        f"{statuses}; neighbour {dict(neighbour.statuses)}, p99 {p99:.3f} s, longest {max(neighbour.seconds):.3f} s; "
        f"memory {before} -> {after} MiB, peak {peak} MiB"
    )
    assert process.poll() is None
    assert sum(statuses.values()) == REQUESTS
    assert not [status for status in statuses if status >= 500 and status != OVERLOADED]
    assert set(neighbour.statuses) == {200}
    assert peak < LIMIT_MIB
    assert after < 1.5 * before
    assert p99 < (1.0 if FULL else 10.0)
    lines = log.read_text().splitlines()
    assert not [line for line in lines if "Traceback" in line or line.startswith("2026-01-01T00:00:00")]


def resident(pid: int, field: str = "VmRSS") -> float:
    """MiB that the process holds in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024, 1)
