"""Scheduling side by side on a real API server: kube-scheduler and ours, same nodes, same pods, same minute.

1,000 nodes with 8 GPUs each and 3,000 pods of one GPU that exist before the scheduler starts. A watcher in a
process of its own notes when bindings become visible; the rate is from the first to the last of them. Runs
alternate, so that whatever else the machine does falls on both. Events are on; each run ends when all of them
are there. Our scheduler then does the same with 3,000 pods of one 1g.10gb slice, for which nobody else is
measured: what slices on demand need (claims before the binding) no other scheduler writes. With `--before TREE`
(another checkout with its own .venv) the scheduler of that tree takes part in the same way.

    python -m benchmarks.scheduling [--runs 5] [--pods 3000] [--nodes 1000] [--before TREE] [-o json]
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apportion.apis import names
from apportion.cluster import access
from apportion.cluster.client import Client
from benchmarks import api_counters, cluster_objects, real_plane
from tests.environments.control_plane import ADMIN, ControlPlane
from tests.environments.sandbox import Daemon

KUBE, OURS, BEFORE = "kube-scheduler", "apportion", "before"
GPU, SLICE = "one GPU", "one 1g.10gb slice"
SLICES = {f"{names.SLICE_PREFIX}1g.10gb": "1"}
EVENTS_WITHIN_SECONDS = 60
PATIENCE_SECONDS = 300.0  # removing thousands of pods is one request


@dataclass(frozen=True)
class Run:
    """One scheduler, one load. CPU in milliseconds per pod, of the scheduler from start to last event."""

    scheduler: str
    pods: str
    rate: float
    cpu_ms: float
    writes: float
    events: int
    api_cpu_ms: float
    load: float


async def main(arguments: argparse.Namespace) -> list[Run]:
    with real_plane.api_server() as plane:
        async with Client(access.from_kubeconfig(plane.kubeconfig), timeout=PATIENCE_SECONDS) as client:
            return await _measure(Bench(plane, client, arguments.pods, arguments.before), arguments)


class Bench:
    """A control plane with nodes, and a way to let a scheduler loose on it."""

    def __init__(self, plane: ControlPlane, client: Client, pods: int, before: Path | None = None) -> None:
        self._plane = plane
        self._client = client
        self._pods = pods
        self._before = before

    async def prepare(self, nodes: int) -> None:
        await cluster_objects.prepare(self._client)
        await cluster_objects.nodes(self._client, nodes)

    async def add_agents(self, nodes: int) -> None:
        await cluster_objects.agents(self._client, nodes)

    async def run(self, scheduler: str, pods: str) -> Run:
        name = "default-scheduler" if scheduler == KUBE else names.DAS_SCHEDULER
        if self._before is not None and scheduler != KUBE:
            await cluster_objects.custom_resources(self._client, self._python(scheduler))
        await cluster_objects.pods(self._client, self._pods, name, {names.NVIDIA_GPU: "1"} if pods == GPU else SLICES)
        load = os.getloadavg()[0]
        watcher = real_plane.watch(self._plane, self._pods)
        writes, busy = await self._writes(), self._api_cpu()
        daemon = self._start(scheduler)
        try:
            seen = await asyncio.to_thread(real_plane.seen, watcher, daemon)
            events = await self._events(daemon)
            cpu = api_counters.cpu_seconds(daemon.pid)
            writes, busy = await self._writes() - writes, self._api_cpu() - busy
        finally:
            daemon.stop(timeout=20)
            watcher.kill()
            watcher.wait()
        await cluster_objects.clear(self._client)
        pods_seen = self._pods
        return Run(
            scheduler=scheduler,
            pods=pods,
            rate=(pods_seen - 1) / (seen["last"] - seen["first"]),
            cpu_ms=1000 * cpu / pods_seen,
            writes=writes / pods_seen,
            events=events,
            api_cpu_ms=1000 * busy / pods_seen,
            load=load,
        )

    def _start(self, scheduler: str) -> Daemon:
        config = self._plane.kubeconfig_of(ADMIN, "bench")
        if scheduler == KUBE:
            return self._plane.start_scheduler(_kube_settings(config))
        command = [self._python(scheduler), "-m", "apportion", "scheduler", "--probes=127.0.0.1:0"]
        return self._plane.sandbox.start("apportion", command, env={"KUBECONFIG": str(config)})

    def _python(self, scheduler: str) -> str:
        if scheduler != BEFORE:
            return sys.executable
        assert self._before is not None
        return str(self._before / ".venv" / "bin" / "python")

    async def _events(self, daemon: Daemon) -> int:
        """Wait for one event Scheduled per pod, and say how many came in time."""
        deadline = time.monotonic() + EVENTS_WITHIN_SECONDS
        while True:
            daemon.expect_alive()
            found = await cluster_objects.count_events(self._client)
            if found >= self._pods or time.monotonic() > deadline:
                return found
            await asyncio.sleep(0.5)

    async def _writes(self) -> int:
        return (await api_counters.writes(self._client)).total()

    def _api_cpu(self) -> float:
        return sum(api_counters.cpu_seconds(each.pid) for each in (self._plane.api_server, self._plane.etcd))


async def _measure(bench: Bench, arguments: argparse.Namespace) -> list[Run]:
    runs: list[Run] = []
    await bench.prepare(arguments.nodes)
    schedulers = [KUBE, OURS, *([BEFORE] if arguments.before else [])]
    schedulers = [each for each in schedulers if arguments.only in {None, each} or each == BEFORE]
    runs += [_told(await bench.run(each, GPU)) for each in _alternating(schedulers, arguments.runs)]
    slicing = [each for each in schedulers if each != KUBE]
    if slicing:
        await bench.add_agents(arguments.nodes)
    runs += [_told(await bench.run(each, SLICE)) for each in _alternating(slicing, arguments.runs)]
    return runs


def _alternating(schedulers: list[str], runs: int) -> list[str]:
    return [each for number in range(runs) for each in schedulers[:: -1 if number % 2 else 1]]


def _kube_settings(kubeconfig: Path) -> dict[str, Any]:
    fit = {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": names.NVIDIA_GPU, "weight": 1}]}}
    return {
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 10000},
        "profiles": [
            {"schedulerName": "default-scheduler", "pluginConfig": [{"name": "NodeResourcesFit", "args": fit}]}
        ],
    }


def _told(run: Run) -> Run:
    print(
        f"{run.scheduler:15} {run.pods:18} {run.rate:7.0f} pods/s  {run.cpu_ms:5.2f} ms CPU, "
        f"{run.writes:.2f} writes per pod, {run.events} events, API {run.api_cpu_ms:.2f} ms, load {run.load:.1f}",
        file=sys.stderr,
        flush=True,
    )
    return run


def _summary(runs: list[Run]) -> list[dict[str, Any]]:
    lines = []
    for scheduler, pods in sorted({(run.scheduler, run.pods) for run in runs}, reverse=True):
        group = [run for run in runs if (run.scheduler, run.pods) == (scheduler, pods)]
        lines.append(
            {
                "scheduler": scheduler,
                "pods": pods,
                "runs": len(group),
                "podsPerSecond": round(statistics.median(run.rate for run in group)),
                "cpuMsPerPod": round(statistics.median(run.cpu_ms for run in group), 2),
                "writesPerPod": round(statistics.median(run.writes for run in group), 2),
                "events": min(run.events for run in group),
            }
        )
    return lines


def _report(runs: list[Run], form: str) -> None:
    lines = _summary(runs)
    if form == "json":
        print(json.dumps({"medians": lines, "runs": [dataclasses.asdict(run) for run in runs]}, indent=2))
        return
    print(f"\n{'scheduler':15} {'pods of':18} {'pods/s':>7} {'CPU ms/pod':>11} {'writes/pod':>11}   median of runs")
    for line in lines:
        print(
            f"{line['scheduler']:15} {line['pods']:18} {line['podsPerSecond']:7} {line['cpuMsPerPod']:11} "
            f"{line['writesPerPod']:11}   {line['runs']}"
        )
    for pods in (GPU, SLICE):
        rates = {line["scheduler"]: line["podsPerSecond"] for line in lines if line["pods"] == pods}
        for other in {KUBE, BEFORE} & set(rates):
            if OURS in rates:
                print(f"apportion / {other}, {pods}: {rates[OURS] / rates[other]:.2f}")
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.scheduling", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--only", choices=(KUBE, OURS))
    parser.add_argument("--before", type=Path, help="another checkout with its own .venv, measured beside this one")
    parser.add_argument("-o", dest="form", choices=("text", "json"), default="text")
    return parser.parse_args()


if __name__ == "__main__":
    chosen = _arguments()
    real_plane.require()
    _report(asyncio.run(main(chosen)), chosen.form)
