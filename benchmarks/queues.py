"""10,000 pods wait in 200 queues when the scheduler starts, on a real API server; beside them the same in one queue.

500 nodes with 8 GPUs each, so that 4,000 of the pods get a GPU. The queues have different quotas and weights, in
departments. Printed: how long the scheduler takes from its start until it has read everything, from there until a
watcher in a process of its own sees the first binding, how many pods per second it binds from the first to the last,
and which part of its CPU time order and fair shares take. Runs alternate.

    python -m benchmarks.queues [--runs 3] [--queues 200] [--pods 10000] [--nodes 500] [-o json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from typing import Any

from apportion.apis import kinds, names
from apportion.apis.meta import Bare
from apportion.cluster import access
from apportion.cluster.client import Client
from benchmarks import cluster_objects, real_plane, timed_scheduler
from benchmarks.cluster_objects import GPUS
from tests.environments import binaries
from tests.environments.control_plane import ADMIN, ControlPlane
from tests.environments.sandbox import Daemon

DEPARTMENTS = 10
PATIENCE_SECONDS = 300.0  # removing thousands of pods is one request
MEASURED = ("syncSeconds", "askedSeconds", "firstSeconds", "podsPerSecond", "orderShare")

Json = dict[str, Any]


async def main(arguments: argparse.Namespace) -> list[Json]:
    with real_plane.api_server() as plane:
        async with Client(access.from_kubeconfig(plane.kubeconfig), timeout=PATIENCE_SECONDS) as client:
            await cluster_objects.prepare(client)
            await cluster_objects.nodes(client, arguments.nodes)
            bench = Bench(plane, client, arguments.pods, arguments.nodes * GPUS)
            kinds_of_runs = (1, arguments.queues)
            order = [each for number in range(arguments.runs) for each in kinds_of_runs[:: -1 if number % 2 else 1]]
            return [_told(await bench.run(queues)) for queues in order]


class Bench:
    """`places`: how many pods can be bound."""

    def __init__(self, plane: ControlPlane, client: Client, pods: int, places: int) -> None:
        self._plane, self._client = plane, client
        self._pods, self._bound = pods, min(pods, places)
        self._started = 0

    async def run(self, queues: int) -> Json:
        await self._prepare(queues)
        load = os.getloadavg()[0]
        watcher = real_plane.watch(self._plane, self._bound)
        began = time.monotonic()
        daemon = self._scheduler()
        try:
            seen = await asyncio.to_thread(real_plane.seen, watcher, daemon)
            timed = await _timed(daemon)
        finally:
            daemon.stop(timeout=20)
            watcher.kill()
            watcher.wait()
        await cluster_objects.clear(self._client)
        await self._client.raw("DELETE", "/apis/scheduling.run.ai/v2/queues")
        return {
            "queues": queues,
            "syncSeconds": round(timed["synced"] - began, 3),
            "askedSeconds": round(timed["asked"] - timed["synced"], 3),
            "firstSeconds": round(seen["first"] - timed["synced"], 3),
            "podsPerSecond": round((self._bound - 1) / (seen["last"] - seen["first"])),
            "orderShare": round(timed["order"] / timed["cpu"], 3),
            "cpuMsPerPod": round(1000 * timed["cpu"] / self._bound, 2),
            "load": load,
        }

    async def _prepare(self, queues: int) -> None:
        made = [_queue(number) for number in range(queues)]
        if queues > 1:
            made += [{"metadata": {"name": f"department-{number}"}, "spec": {}} for number in range(DEPARTMENTS)]
        else:
            del made[0]["spec"]["parentQueue"]
        await cluster_objects.all_of(self._client.create(kinds.QUEUES, queue) for queue in made)
        await cluster_objects.all_of(
            self._client.create(kinds.PODS, _pod(number, number % queues), into=Bare) for number in range(self._pods)
        )

    def _scheduler(self) -> Daemon:
        config = self._plane.kubeconfig_of(ADMIN, "bench")
        command = [sys.executable, "-m", "benchmarks.timed_scheduler", str(self._bound), "--probes=127.0.0.1:0"]
        environment = {"KUBECONFIG": str(config), "PYTHONPATH": str(binaries.ROOT)}
        self._started += 1
        return self._plane.sandbox.start(f"apportion-{self._started}", command, env=environment)


async def _timed(daemon: Daemon) -> dict[str, float]:
    """What the scheduler says of itself, which may come a little later than the last binding."""
    while True:
        daemon.expect_alive()
        for line in daemon.log.read_text().splitlines():
            if line.startswith(timed_scheduler.MARK):
                found: dict[str, float] = json.loads(line.removeprefix(timed_scheduler.MARK))
                return found
        await asyncio.sleep(0.1)


def _queue(number: int) -> Json:
    gpu = {"quota": number % 3, "overQuotaWeight": 1 + number % 2}
    spec = {"parentQueue": f"department-{number % DEPARTMENTS}", "resources": {"gpu": gpu}}
    return {"metadata": {"name": f"queue-{number:04}"}, "spec": spec}


def _pod(number: int, queue: int) -> Json:
    limits = {names.NVIDIA_GPU: "1"}
    container = {"name": "main", "image": "busybox", "resources": {"limits": limits}}
    metadata = {
        "name": f"p{number:05}",
        "namespace": "default",
        "labels": {names.QUEUE_LABEL: f"queue-{queue:04}"},
    }
    return {"metadata": metadata, "spec": {"schedulerName": names.KAI_SCHEDULER, "containers": [container]}}


def _told(run: Json) -> Json:
    print(
        f"{run['queues']:4} queues: sync {run['syncSeconds']:.2f} s, first binding sent {run['askedSeconds']:.2f} and "
        f"seen {run['firstSeconds']:.2f} s later, {run['podsPerSecond']} pods/s, {run['cpuMsPerPod']} ms CPU per pod, "
        f"{100 * run['orderShare']:.0f} % for order and shares, load {run['load']:.1f}",
        file=sys.stderr,
        flush=True,
    )
    return run


def _medians(runs: list[Json]) -> list[Json]:
    return [
        {"queues": queues}
        | {name: statistics.median(run[name] for run in runs if run["queues"] == queues) for name in MEASURED}
        for queues in sorted({run["queues"] for run in runs})
    ]


def _report(runs: list[Json], form: str) -> None:
    lines = _medians(runs)
    one, many = lines[0], lines[-1]
    ratios = {name: round(many[name] / one[name], 2) for name in ("firstSeconds", "podsPerSecond") if one[name]}
    if form == "json":
        print(json.dumps({"medians": lines, "ratios": ratios, "runs": runs}, indent=2))
        return
    print(f"{'queues':>6} {'sync s':>7} {'first s':>8} {'pods/s':>7} {'order':>6}   median")
    for line in lines:
        print(
            f"{line['queues']:6} {line['syncSeconds']:7.2f} {line['firstSeconds']:8.2f} "
            f"{line['podsPerSecond']:7.0f} {line['orderShare']:6.0%}"
        )
    said = ", ".join(f"{name} {ratio}" for name, ratio in ratios.items())
    print(f"many queues / one: {said}; load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.queues", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--queues", type=int, default=200)
    parser.add_argument("--pods", type=int, default=10000)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("-o", dest="form", choices=("text", "json"), default="text")
    return parser.parse_args()


if __name__ == "__main__":
    chosen = _arguments()
    real_plane.require()
    _report(asyncio.run(main(chosen)), chosen.form)
