"""The webhook over TLS, beside a bare handler of the same server in the same process: how fast, and does it grow?

    bare       reads the review and allows it: what the server itself costs
    plain      a pod without a GPU
    mig        a pod whose MIG devices become slices
    fallback   a pod whose devices are all taken, on 1,000 nodes: decided, promised in the cluster, patched

The four take turns, so that whatever else the machine does falls on all. Then as many reviews as asked for are
sent, and the process's memory is compared with what it was after the first thousand.

    python -m benchmarks.admission [--nodes 1000] [--rounds 5] [--each 400] [--requests 100000] [-o json]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import itertools
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import uvloop
from rich.console import Console
from rich.table import Table

from apportion import manifests
from apportion.admission import admission_review
from apportion.admission.fallback.decision_rounds import Patience
from apportion.admission.main import PARTS, Settings, Webhook
from apportion.admission.server import AdmissionServer
from apportion.apis import kinds, names
from apportion.apis.custom_resources import crds
from apportion.apis.installation import Installation
from apportion.cluster import errors
from apportion.cluster.client import Client
from tests.environments.embedded import Embedded
from tests.environments.waiting import eventually

Json = dict[str, Any]
AT_ONCE = 16
FIRST = 1_000
NAMESPACES = [f"bench-{number}" for number in range(500)]  # in turn: one whose promises are not redeemed gets few
SERVER_NAME = "gpu-webhook.gpu-webhook.svc"
CASES = {
    "bare": ("/bare", {"nvidia.com/mig-1g.5gb": "1"}),
    "plain": ("/mutate-slices", {"cpu": "1"}),
    "mig": ("/mutate-slices", {"nvidia.com/mig-1g.5gb": "1"}),
    "fallback": ("/mutate-fallback", {"nvidia.com/mig-2g.20gb": "1"}),
}


async def serve(kubeconfig: str) -> None:
    """The process under test: prints where it serves, as `webhook-address bare-address`."""
    settings = Settings(
        listen="127.0.0.1:0",
        probes="127.0.0.1:0",
        serve=PARTS,
        namespace=Installation.fallback_namespace,
        service=Installation.fallback_service,
        secret=Installation.fallback_secret,
        patience=Patience(lifetime=0.3),  # no pod ever comes of these promises
    )
    async with Client.from_kubeconfig(kubeconfig) as client, asyncio.TaskGroup() as tasks:
        webhook = Webhook(client, settings)
        tasks.create_task(webhook.run())
        address, _ = await webhook.bound
        while not webhook.ready():  # noqa: ASYNC110  once, at the start
            await asyncio.sleep(0.05)
        bare = AdmissionServer({"/bare": lambda question: admission_review.allowed(question.uid)}, webhook.tls.context)
        print(address, f"127.0.0.1:{await bare.start('127.0.0.1', 0)}", flush=True)
        await asyncio.Event().wait()


async def fill(client: Client, nodes: int) -> None:
    """Nodes with one 2g.20gb each, all of them taken, and room for what falls back."""
    for definition in crds.crds():
        await client.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, definition)
    for name in (names.DAS_NAMESPACE, names.FALLBACK_NAMESPACE, *NAMESPACES):
        await client.create(kinds.NAMESPACES, {"metadata": {"name": name}})
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "500"}
    amounts |= {"nvidia.com/mig-2g.20gb": "1", "nvidia.com/mig-1g.10gb": "28"}
    container = {"name": "main", "image": "busybox:1.36", "resources": {"limits": {"nvidia.com/mig-2g.20gb": "1"}}}

    async def one(number: int) -> None:
        name = f"node-{number:05}"
        await client.create(kinds.NODES, {"metadata": {"name": name}})
        await client.patch(kinds.NODES, name, {"spec": {"taints": None}})
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        await client.patch(kinds.NODES, name, status, subresource="status")
        body = {"metadata": {"name": f"holder-{number}"}, "spec": {"nodeName": name, "containers": [container]}}
        await client.create(kinds.PODS, body, namespace="default")

    for start in range(0, nodes, 50):
        await asyncio.gather(*map(one, range(start, min(start + 50, nodes))))
    configuration = next(
        entry for entry in manifests.load("fallback") if entry["kind"] == "MutatingWebhookConfiguration"
    )
    await client.create(kinds.MUTATING_WEBHOOKS, configuration)


class Asker:
    """Sends reviews over kept connections, as an API server does."""

    def __init__(self, session: aiohttp.ClientSession, webhook: str, bare: str) -> None:
        self._session = session
        self._where = {
            name: f"https://{bare if name == 'bare' else webhook}{path}" for name, (path, _) in CASES.items()
        }
        self._namespaces = itertools.cycle(NAMESPACES)
        self.sent = 0

    async def many(self, case: str, count: int) -> tuple[float, list[float]]:
        """Seconds in all, and of each."""
        took: list[float] = []
        left = iter(range(count))

        async def lane() -> None:
            for _ in left:
                began = time.perf_counter()
                await self._ask(case)
                took.append(time.perf_counter() - began)

        began = time.perf_counter()
        await asyncio.gather(*(lane() for _ in range(AT_ONCE)))
        self.sent += count
        return time.perf_counter() - began, took

    async def _ask(self, case: str) -> None:
        body = _body(CASES[case][1], next(self._namespaces))
        headers = {"Content-Type": "application/json"}
        async with self._session.post(
            self._where[case], data=body, headers=headers, server_hostname=SERVER_NAME
        ) as response:
            answer = json.loads(await response.read())["response"]
        if not answer["allowed"] or ("patch" in answer) != (case in {"mig", "fallback"}):
            raise AssertionError(f"{case}: {answer}")


def _body(limits: Json, namespace: str) -> bytes:
    container = {"name": "main", "image": "busybox:1.36", "resources": {"limits": limits}}
    pod = {"metadata": {"generateName": "bench-", "namespace": namespace}, "spec": {"containers": [container]}}
    request = {
        "uid": str(uuid.uuid4()),
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": namespace,
        "operation": "CREATE",
        "object": pod,
        "oldObject": None,
        "dryRun": False,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


async def measure(kubeconfig: Path, given: argparse.Namespace) -> Json:
    async with Client.from_kubeconfig(kubeconfig) as client:
        await fill(client, given.nodes)
        async with _asker(client, kubeconfig) as (asker, process):
            seconds: dict[str, float] = dict.fromkeys(CASES, 0.0)
            took: dict[str, list[float]] = {case: [] for case in CASES}
            for case in CASES:
                await asker.many(case, 50)
            for _, case in itertools.product(range(given.rounds), CASES):
                spent, each = await asker.many(case, given.each)
                seconds[case] += spent
                took[case] += each
            memory = await _memory(asker, process.pid, given.requests)
    rates = {case: len(took[case]) / seconds[case] for case in CASES}
    return {
        "nodes": given.nodes,
        "load": os.getloadavg()[0],
        "cases": {
            case: {
                "requests_per_second": round(rates[case], 1),
                "p50_ms": round(1000 * statistics.median(took[case]), 2),
                "p99_ms": round(1000 * statistics.quantiles(took[case], n=100)[98], 2),
                "times_bare": round(rates["bare"] / rates[case], 2),
            }
            for case in CASES
        },
        "memory": memory,
    }


async def _memory(asker: Asker, pid: int, requests: int) -> Json:
    asker.sent = 0
    sizes: dict[int, float] = {}
    for goal in (FIRST, requests):
        while asker.sent < goal:
            for case, share in (("plain", 0.4), ("mig", 0.4), ("fallback", 0.2)):
                await asker.many(case, int(min(1000, goal) * share))
        sizes[goal] = _resident(pid)
    first, last = sizes[FIRST], sizes[requests]
    return {"mib_after_first": first, "mib_after_all": last, "requests": requests, "growth": round(last / first - 1, 4)}


@asynccontextmanager
async def _asker(client: Client, kubeconfig: Path) -> AsyncIterator[tuple[Asker, subprocess.Popen[str]]]:
    command = ["setpriv", "--pdeathsig", "TERM", "--", sys.executable, "-m", "benchmarks.admission"]
    command += ["--serve", str(kubeconfig)]
    process = _started(command)
    with process:
        try:
            assert process.stdout is not None
            webhook, bare = (await asyncio.to_thread(process.stdout.readline)).split()
            found = await eventually(lambda: _bundle(client), seconds=60)
            connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=found), limit=AT_ONCE)
            async with aiohttp.ClientSession(connector=connector) as session:
                yield Asker(session, webhook, bare), process
        finally:
            process.kill()


def _started(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


async def _bundle(client: Client) -> str | None:
    try:
        found = await client.get(kinds.MUTATING_WEBHOOKS, names.FALLBACK_WEBHOOK_CONFIGURATION)
    except errors.NotFound:
        return None
    text = found["webhooks"][0]["clientConfig"].get("caBundle")
    return base64.b64decode(text).decode() if text else None


def _resident(pid: int) -> float:
    """MiB that the process holds in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024, 1)


def report(found: Json) -> None:
    table = Table(title=f"admission over TLS, {found['nodes']} nodes, load average {found['load']:.1f}")
    for column in ("case", "requests/s", "p50 ms", "p99 ms", "x bare"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for case, row in found["cases"].items():
        values = (row["requests_per_second"], row["p50_ms"], row["p99_ms"], row["times_bare"])
        table.add_row(case, *(f"{value:,}" for value in values))
    console = Console()
    console.print(table)
    memory = found["memory"]
    console.print(
        f"memory: {memory['mib_after_first']} MiB after {FIRST:,} reviews, {memory['mib_after_all']} MiB after "
        f"{memory['requests']:,} ({100 * memory['growth']:+.1f} %)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--each", type=int, default=400)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    parser.add_argument("--serve", metavar="KUBECONFIG", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        uvloop.run(serve(given.serve))
        return
    with tempfile.TemporaryDirectory() as folder:
        cluster = Embedded(Path(folder))
        try:
            found = uvloop.run(measure(cluster.kubeconfig, given))
        finally:
            cluster.close()
    if given.output == "json":
        print(json.dumps(found, indent=2))
    else:
        report(found)


if __name__ == "__main__":
    main()
