"""How long a pod that fits waits behind many that do not, on a real API server.

2,000 nodes, 1,000 pods of an Indexed Job that ask for more GPUs than any node has, and then pods of one GPU, one
after the other. Before each of them a pod ends, so that the waiting ones may be looked at again. Printed: the time
from the answer to the creation until the binding is seen, and how many explanations the scheduler worked out. The
first line is a program that binds each of these pods as soon as it sees it: what API server and machine cost alone.

    python -m benchmarks.waiting [--nodes 2000] [--waiting 1000] [--pods 100] [--before TREE] [-o json]
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import subprocess
import sys
import time
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from apportion.apis import kinds, names
from apportion.apis.meta import Bare
from apportion.cluster import access, errors
from apportion.cluster.client import Client
from benchmarks import cluster_objects, real_plane
from tests.environments import binaries
from tests.environments.control_plane import ADMIN, ControlPlane

INDEX = "batch.kubernetes.io/job-completion-index"
FITS = "fits-"
PROBES = "127.0.0.1:18431"
BOUND_WITHIN_SECONDS = 60.0


async def main(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    with real_plane.api_server() as plane:
        async with Client(access.from_kubeconfig(plane.kubeconfig), timeout=300.0) as client:
            await cluster_objects.prepare(client)
            await cluster_objects.nodes(client, arguments.nodes)
            measure = functools.partial(_measure, plane, client, arguments)
            binder = [sys.executable, "-m", "benchmarks.bare_binder", FITS, "node-0000"]
            results = [await measure("bare binder", binder, explains=False)]
            results.append(await measure("apportion", _scheduler(sys.executable)))
            if arguments.before:
                python = str(arguments.before / ".venv" / "bin" / "python")
                results.append(await measure("before", _scheduler(python)))
            return results


def _scheduler(python: str) -> list[str]:
    return [python, "-m", "apportion", "scheduler", f"--probes={PROBES}"]


async def _measure(
    plane: ControlPlane,
    client: Client,
    arguments: argparse.Namespace,
    name: str,
    command: list[str],
    *,
    explains: bool = True,
) -> dict[str, Any]:
    config = plane.kubeconfig_of(ADMIN, "bench")
    environment = {"KUBECONFIG": str(config), "PYTHONPATH": str(binaries.ROOT)}
    daemon = plane.sandbox.start(name.replace(" ", "-"), command, env=environment)
    try:
        await _indexed(client, arguments.waiting)
        if explains:
            await _all_explained(client, arguments.waiting)
        seconds = []
        for number in range(arguments.pods):
            seconds.append(await _placed(client, f"{FITS}{number:04}", before=f"{FITS}{number - 1:04}"))
            daemon.expect_alive()
        explanations = await _explanations(plane) if explains else None
    finally:
        daemon.stop(timeout=20)
    await cluster_objects.clear(client)
    seconds.sort()
    return {
        "scheduler": name,
        "p50Ms": round(1000 * seconds[len(seconds) // 2], 1),
        "p99Ms": round(1000 * seconds[max(0, -(-99 * len(seconds) // 100) - 1)], 1),
        "explanations": explanations,
    }


async def _indexed(client: Client, count: int) -> None:
    limits = {names.NVIDIA_GPU: str(2 * cluster_objects.GPUS)}
    for first in range(0, count, 100):
        await asyncio.gather(
            *(_create(client, f"indexed-{n}", limits, {INDEX: str(n)}) for n in range(first, min(first + 100, count)))
        )


async def _create(client: Client, name: str, limits: dict[str, str], labels: dict[str, str]) -> None:
    container = {"name": "main", "image": "busybox", "resources": {"limits": limits}}
    spec = {"schedulerName": names.DAS_SCHEDULER, "hostname": name, "containers": [container]}
    meta = {"name": name, "namespace": "default", "labels": labels}
    await client.create(kinds.PODS, {"metadata": meta, "spec": spec}, into=Bare)


async def _all_explained(client: Client, count: int) -> None:
    while True:
        found = await client.list(kinds.PODS, namespace="default", fields="spec.nodeName=")
        told = [pod for pod in found.items if (pod.get("status") or {}).get("conditions")]
        if len(told) >= count:
            return
        await asyncio.sleep(0.5)


async def _placed(client: Client, name: str, *, before: str) -> float:
    """From the answer to the creation until the binding is seen; the pod before it ends at the same moment."""
    listing = await client.list(kinds.PODS, namespace="default", fields=f"metadata.name={name}", into=Bare)
    bound = asyncio.Event()

    async def watch() -> None:
        fields = f"metadata.name={name},spec.nodeName!="
        stream = client.watch(
            kinds.PODS, namespace="default", fields=fields, resource_version=listing.resource_version, into=Bare
        )
        async with aclosing(stream) as events:
            async for event in events:
                if event.type == "ADDED":
                    bound.set()
                    return

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.05)
    with suppress(errors.NotFound):
        await client.raw("DELETE", f"/api/v1/namespaces/default/pods/{before}", body={"gracePeriodSeconds": 0})
    await _create(client, name, {names.NVIDIA_GPU: "1"}, {})
    start = time.monotonic()
    async with asyncio.timeout(BOUND_WITHIN_SECONDS):
        await bound.wait()
    seconds = time.monotonic() - start
    await watching
    return seconds


async def _explanations(plane: ControlPlane) -> int | None:
    """From the scheduler's own counter; None where it has none."""
    fetch = f"import urllib.request as r; print(r.urlopen('http://{PROBES}/metrics').read().decode())"
    command = [*plane.enter, sys.executable, "-c", fetch]
    text = await asyncio.to_thread(subprocess.check_output, command, text=True)
    values = [
        line.split()[-1] for line in text.splitlines() if line.startswith("apportion_scheduler_explanations_total")
    ]
    return int(float(values[0])) if values else None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.waiting", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--waiting", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=100)
    parser.add_argument("--before", type=Path, help="another checkout with its own .venv, measured beside this one")
    parser.add_argument("-o", dest="form", choices=("text", "json"), default="text")
    return parser.parse_args()


if __name__ == "__main__":
    chosen = _arguments()
    real_plane.require()
    results = asyncio.run(main(chosen))
    if chosen.form == "json":
        print(json.dumps(results, indent=2))
    else:
        print(f"{'scheduler':12} {'p50 ms':>8} {'p99 ms':>8} {'explanations':>13}   behind {chosen.waiting} pods")
        for line in results:
            print(f"{line['scheduler']:12} {line['p50Ms']:8} {line['p99Ms']:8} {line['explanations'] or '-':>13}")
        print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
