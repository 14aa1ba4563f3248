"""A gang takes GPUs of another queue, on a real API server: ours, and a script that only sends the writes.

500 nodes with 8 GPUs each, all in use by pods of one queue; they end as soon as they are evicted. Then 400 pods of one
GPU are created in another queue, which must run together. Measured is the time from the first creation to the last
binding that a watcher sees. The script knows everything beforehand: for each pod it sends what the scheduler sends up
to the binding (the nominated node, the eviction), many pods at once. Events follow later. Runs alternate.

    python -m benchmarks.gang [--runs 3] [--nodes 500] [--pods 400] [-o json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from apportion.apis import kinds, names
from apportion.apis.meta import Bare
from apportion.cluster import access
from apportion.cluster.client import Client
from benchmarks import api_counters, cluster_objects, real_plane
from benchmarks.cluster_objects import GPUS
from tests.environments.control_plane import ADMIN, ControlPlane
from tests.environments.sandbox import Daemon

HOLDERS, TAKERS = "holders", "default"  # namespaces, and queues of the same names
SCRIPT, OURS = "script", "apportion"
AT_ONCE = 64
SYNCED_WITHIN_SECONDS = 60.0

Json = dict[str, Any]


async def main(arguments: argparse.Namespace) -> list[Json]:
    with real_plane.api_server() as plane:
        async with Client(access.from_kubeconfig(plane.kubeconfig), timeout=300.0) as client:
            await _prepare(client, arguments.nodes)
            bench = Bench(plane, client, arguments.nodes, arguments.pods)
            order = [name for number in range(arguments.runs) for name in (SCRIPT, OURS)[:: -1 if number % 2 else 1]]
            return [_told(await bench.run(name)) for name in order]


async def _prepare(client: Client, nodes: int) -> None:
    await cluster_objects.prepare(client)
    await client.create(kinds.NAMESPACES, {"metadata": {"name": HOLDERS}})
    await cluster_objects.nodes(client, nodes)
    for queue in (HOLDERS, TAKERS):
        resources = {"gpu": {"quota": 0, "limit": -1, "overQuotaWeight": 1}}
        await client.create(kinds.QUEUES, {"metadata": {"name": queue}, "spec": {"resources": resources}})
    group = {"metadata": {"name": "gang", "namespace": TAKERS}, "spec": {"minMember": 1, "queue": TAKERS}}
    await client.create(kinds.POD_GROUPS, group)


class Bench:
    def __init__(self, plane: ControlPlane, client: Client, nodes: int, pods: int) -> None:
        self._plane, self._client = plane, client
        self._nodes, self._pods = nodes, pods
        self._holders: list[Json] = []
        self._started = 0

    async def run(self, name: str) -> Json:
        await self._fill()
        patch = {"spec": {"minMember": self._pods}}
        await self._client.patch(kinds.POD_GROUPS, "gang", patch, namespace=TAKERS)
        load = os.getloadavg()[0]
        daemon = await self._scheduler() if name == OURS else None
        watcher = real_plane.watch(self._plane, self._pods)
        before = await api_counters.writes(self._client)
        try:
            started = time.monotonic()
            if daemon is None:
                await self._all(self._taken)
            else:
                await self._all(self._created)
            last = (await asyncio.to_thread(real_plane.seen, watcher, daemon))["last"]
            writes = await api_counters.writes(self._client) - before
        finally:
            if daemon is not None:
                daemon.stop(timeout=20)
            watcher.kill()
            watcher.wait()
        await cluster_objects.clear(self._client)
        return {"name": name, "seconds": last - started, "writes": dict(sorted(writes.items())), "load": load}

    async def _fill(self) -> None:
        """Every GPU is used by a pod of the other queue."""
        known = await self._client.list(kinds.PODS, namespace=HOLDERS)
        there = {pod["metadata"]["name"] for pod in known.items}

        async def create(number: int) -> None:
            name = f"h{number:05}"
            if name not in there:
                pod = _pod(name, HOLDERS, node=f"node-{number // GPUS:04}")
                await self._client.create(kinds.PODS, pod, into=Bare)

        await self._all(create, self._nodes * GPUS)
        listed = await self._client.list(kinds.PODS, namespace=HOLDERS)
        self._holders = sorted(listed.items, key=lambda pod: pod["metadata"]["name"])

    async def _created(self, number: int) -> Json:
        return await self._client.create(kinds.PODS, _pod(f"t{number:05}", TAKERS, group="gang"))

    async def _taken(self, number: int) -> None:
        """Everything that is written for one pod of the gang until it is bound."""
        pod, victim = (await self._created(number))["metadata"], self._holders[number]
        node = victim["spec"]["nodeName"]
        status = {"status": {"nominatedNodeName": node}}
        await self._client.patch(kinds.PODS, pod["name"], status, namespace=TAKERS, subresource="status")
        await self._client.evict(HOLDERS, victim["metadata"]["name"], uid=victim["metadata"]["uid"])
        await self._client.bind(TAKERS, pod["name"], pod["uid"], node)

    async def _all(self, work: Callable[[int], Awaitable[Any]], count: int = 0) -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with slots:
                await work(number)

        async with asyncio.TaskGroup() as group:
            for number in range(count or self._pods):
                group.create_task(one(number))

    async def _scheduler(self) -> Daemon:
        config = self._plane.kubeconfig_of(ADMIN, "bench")
        command = [sys.executable, "-m", "apportion", "scheduler", "--probes=127.0.0.1:0"]
        self._started += 1
        daemon = self._plane.sandbox.start(f"apportion-{self._started}", command, env={"KUBECONFIG": str(config)})
        deadline = time.monotonic() + SYNCED_WITHIN_SECONDS
        while "synced:" not in daemon.log.read_text():
            daemon.expect_alive()
            if time.monotonic() > deadline:
                raise RuntimeError("the scheduler did not sync")
            await asyncio.sleep(0.2)
        await asyncio.sleep(2.0)  # statuses of queues
        return daemon


def _pod(name: str, queue: str, *, node: str = "", group: str = "") -> Json:
    limits = {names.NVIDIA_GPU: "1"}
    container = {"name": "main", "image": "busybox", "resources": {"limits": limits}}
    spec: Json = {
        "schedulerName": names.KAI_SCHEDULER,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        **({"nodeName": node} if node else {}),
    }
    annotations = {"annotations": {names.POD_GROUP: group}} if group else {}
    metadata = {"name": name, "namespace": queue, "labels": {names.QUEUE_LABEL: queue}, **annotations}
    return {"metadata": metadata, "spec": spec}


def _told(run: Json) -> Json:
    writes = ", ".join(f"{count} {what}" for what, count in run["writes"].items())
    print(f"{run['name']:10} {run['seconds']:6.2f} s  load {run['load']:.1f}  {writes}", file=sys.stderr, flush=True)
    return run


def _report(runs: list[Json], form: str) -> None:
    medians = {
        name: statistics.median(run["seconds"] for run in runs if run["name"] == name) for name in (SCRIPT, OURS)
    }
    if form == "json":
        print(json.dumps({"medians": medians, "ratio": medians[OURS] / medians[SCRIPT], "runs": runs}, indent=2))
        return
    for name, seconds in medians.items():
        print(f"{name:10} {seconds:6.2f} s (median)")
    print(f"apportion / script: {medians[OURS] / medians[SCRIPT]:.2f}; load average {os.getloadavg()[0]:.1f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.gang", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=400)
    parser.add_argument("-o", dest="form", choices=("text", "json"), default="text")
    return parser.parse_args()


if __name__ == "__main__":
    chosen = _arguments()
    real_plane.require()
    _report(asyncio.run(main(chosen)), chosen.form)
