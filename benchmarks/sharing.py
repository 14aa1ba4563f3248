"""Pods that share GPUs beside pods of one GPU, on a real API server.

500 nodes with 8 GPUs each, known by their Node objects only. Scheduler, binder and a stand-in for the kubelets, which
answers reservation pods, are processes of their own. Two measurements:

- Throughput: 2,000 pods that exist before the scheduler starts, each of one GPU or, in the next run, of a fraction. A
  watcher in a process of its own notes when bindings become visible; the rate is from the moment at which the
  scheduler knows the cluster to the last of them.
- Latency: pods that are created one after the other, two for each node, from the answer to the creation until the
  binding is seen. The first pod of a shared GPU waits for its reservation pod, those that join it do not. For some of
  them the writes that each caused are counted, that of the stand-in included and events apart.

    python -m benchmarks.sharing [--runs 3] [--pods 2000] [--nodes 500] [--single 100] [--fraction 0.5] [-o json]
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
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from apportion.apis import kinds, names
from apportion.apis.meta import Bare
from apportion.apis.shared_gpus import groups_of
from apportion.cluster import access
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from benchmarks import api_counters, cluster_objects, real_plane
from tests.environments import binaries
from tests.environments.control_plane import ADMIN, ControlPlane
from tests.environments.sandbox import Daemon

GPU, SHARE = "one GPU", "a fraction"
FIRST, JOINER = "first on its GPU", "joins a GPU"
KUBELET, BINDER, SCHEDULER = "kubelet", "binder", "scheduler"
COMMANDS = {
    KUBELET: ("benchmarks.reservation_kubelet",),
    BINDER: ("apportion", "binder", "--probes=127.0.0.1:0"),
    SCHEDULER: ("apportion", "scheduler", "--probes=127.0.0.1:0"),
}
SYNCED_WITHIN_SECONDS = 60.0
BOUND_WITHIN_SECONDS = 60.0
LATE_WRITES_SECONDS = 0.3  # what a pod causes after it was bound
COUNTED_PODS = 20  # whose writes are counted one by one
UNCOUNTED = ("events", "leases")
LEAST_RATIO = 0.12
MOST_WRITES = {FIRST: 10.0, JOINER: 5.0}

Json = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """Many pods at once. CPU in milliseconds per pod until the last binding, for the scheduler with its start."""

    pods: str
    rate: float
    cpu_ms: dict[str, float]
    api_cpu_ms: float
    writes: dict[str, float]  # per pod
    load: float


@dataclass(frozen=True)
class Single:
    """One pod alone."""

    pods: str
    seconds: float
    writes: int | None = None


async def main(arguments: argparse.Namespace) -> tuple[list[Run], list[Single]]:
    with real_plane.api_server() as plane:
        async with Client(access.from_kubeconfig(plane.kubeconfig), timeout=300.0) as client:
            await _prepare(client, arguments.nodes)
            bench = Bench(plane, client, arguments.fraction)
            order = [pods for number in range(arguments.runs) for pods in (GPU, SHARE)[:: -1 if number % 2 else 1]]
            runs = [_told(await bench.run(pods, arguments.pods)) for pods in order]
            singles = [
                each
                for pods in (GPU, SHARE)
                for each in await bench.one_by_one(pods, arguments.single, arguments.nodes)
            ]
            return runs, singles


async def _prepare(client: Client, nodes: int) -> None:
    await cluster_objects.prepare(client)
    for namespace in (names.KAI_NAMESPACE, names.RESERVATION_NAMESPACE):
        await client.create(kinds.NAMESPACES, {"metadata": {"name": namespace}})
    switch = {"metadata": {"name": names.KAI_CONFIG_OBJECT}, "spec": {"admission": {"gpuSharing": True}}}
    await cluster_objects.nodes(client, nodes)  # long enough for the definitions above to be served
    await client.create(kinds.KAI_CONFIGS, switch)


class Bench:
    """A control plane with nodes, and the programs that are let loose on it."""

    def __init__(self, plane: ControlPlane, client: Client, fraction: str) -> None:
        self._plane, self._client, self._fraction = plane, client, fraction
        self._started = 0

    async def run(self, pods: str, count: int) -> Run:
        """All pods are there when the scheduler starts."""
        await cluster_objects.all_of(self._create(f"p{number:05}", pods) for number in range(count))
        load = os.getloadavg()[0]
        watcher = real_plane.watch(self._plane, count)
        before, busy = await api_counters.writes(self._client), self._api_cpu()
        try:
            async with self._processes() as daemons:
                idle = {name: api_counters.cpu_seconds(daemons[name].pid) for name in (KUBELET, BINDER)}
                await _synced(daemons[SCHEDULER])
                start = time.monotonic()
                seen = await asyncio.to_thread(real_plane.seen, watcher, daemons[SCHEDULER])
                writes = _counted(await api_counters.writes(self._client) - before)
                cpu = {name: api_counters.cpu_seconds(daemon.pid) for name, daemon in daemons.items()}
                busy = self._api_cpu() - busy
        finally:
            watcher.kill()
            watcher.wait()
        await self._clear()
        cpu = {name: seconds - idle.get(name, 0.0) for name, seconds in cpu.items()}
        return Run(
            pods=pods,
            rate=count / (seen["last"] - start),
            cpu_ms={name: 1000 * seconds / count for name, seconds in cpu.items()},
            api_cpu_ms=1000 * busy / count,
            writes={what: number / count for what, number in sorted(writes.items())},
            load=load,
        )

    async def one_by_one(self, pods: str, count: int, nodes: int) -> list[Single]:
        """Each pod is created when the one before it is bound."""
        bound: asyncio.Queue[Bare] = asyncio.Queue()
        informer = Informer(self._client, kinds.PODS, namespace="default", fields="spec.nodeName!=", into=Bare)
        informer.on_change(lambda old, new: bound.put_nowait(new) if old is None and new is not None else None)
        groups: set[str] = set()
        found = []
        async with self._processes() as daemons, asyncio.TaskGroup() as following:
            watching = following.create_task(informer.run())
            await informer.synced()
            await _synced(daemons[SCHEDULER])
            for number in range(count + COUNTED_PODS):
                counted = number >= count
                before = await api_counters.writes(self._client) if counted else None
                await self._create(f"p{number:05}", pods, {names.HOSTNAME_LABEL: f"node-{number // 2 % nodes:04}"})
                start = time.monotonic()
                async with asyncio.timeout(BOUND_WITHIN_SECONDS):
                    pod = await bound.get()
                seconds = time.monotonic() - start
                kind = GPU if pods == GPU else JOINER if groups.issuperset(groups_of(pod.metadata)) else FIRST
                groups.update(groups_of(pod.metadata))
                found.append(Single(kind, seconds, await self._writes_since(before) if before is not None else None))
            watching.cancel()
        await self._clear()
        return found

    async def _writes_since(self, before: Counter[str]) -> int:
        await asyncio.sleep(LATE_WRITES_SECONDS)
        writes = _counted(await api_counters.writes(self._client) - before)
        return writes.total() - 1  # the benchmark created the pod

    @asynccontextmanager
    async def _processes(self) -> AsyncIterator[dict[str, Daemon]]:
        """Kubelet and binder know the cluster when the scheduler starts."""
        daemons: dict[str, Daemon] = {}
        self._started += 1
        try:
            for name in COMMANDS:
                daemons[name] = self._start(name)
                if name != SCHEDULER:
                    await _synced(daemons[name])
            yield daemons
        finally:
            for daemon in reversed(daemons.values()):
                daemon.stop(timeout=20)

    def _start(self, name: str) -> Daemon:
        config = self._plane.kubeconfig_of(ADMIN, "bench")
        environment = {"KUBECONFIG": str(config), "PYTHONPATH": str(binaries.ROOT)}
        command = [sys.executable, "-m", *COMMANDS[name]]
        return self._plane.sandbox.start(f"{name}-{self._started}", command, env=environment)

    async def _create(self, name: str, pods: str, selector: dict[str, str] | None = None) -> None:
        """A pod as admission leaves it."""
        limits = {names.NVIDIA_GPU: "1"} if pods == GPU else {}
        resources = {"limits": limits, "requests": {"cpu": "1", "memory": "1Gi", **limits}}
        container = {"name": "main", "image": "busybox", "resources": resources}
        spec = {"schedulerName": names.KAI_SCHEDULER, "nodeSelector": selector or {}, "containers": [container]}
        meta: Json = {"name": name, "namespace": "default"}
        if pods == SHARE:
            meta["annotations"] = {
                names.GPU_FRACTION: self._fraction,
                names.SHARED_GPU_CONFIG_MAP: f"{name}-abc1234-shared-gpu",
            }
        await self._client.create(kinds.PODS, {"metadata": meta, "spec": spec}, into=Bare)

    async def _clear(self) -> None:
        """The binder does not run any more, and nobody collects garbage."""
        collections = (
            f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}/pods",
            "/apis/scheduling.run.ai/v1alpha2/namespaces/default/bindrequests",
            "/api/v1/namespaces/default/configmaps",
        )
        for path in collections:
            await self._client.raw("DELETE", path, body={"gracePeriodSeconds": 0})
        await cluster_objects.clear(self._client)

    def _api_cpu(self) -> float:
        return sum(api_counters.cpu_seconds(each.pid) for each in (self._plane.api_server, self._plane.etcd))


async def _synced(daemon: Daemon) -> None:
    deadline = time.monotonic() + SYNCED_WITHIN_SECONDS
    while "synced:" not in daemon.log.read_text():
        daemon.expect_alive()
        if time.monotonic() > deadline:
            raise RuntimeError(f"{daemon.name} did not sync")
        await asyncio.sleep(0.1)


def _counted(writes: Counter[str]) -> Counter[str]:
    return Counter({what: count for what, count in writes.items() if not what.endswith(UNCOUNTED)})


def _told(run: Run) -> Run:
    writes = ", ".join(f"{number:.2f} {what}" for what, number in run.writes.items())
    cpu = ", ".join(f"{name} {ms:.2f}" for name, ms in run.cpu_ms.items())
    print(
        f"{run.pods:10} {run.rate:6.1f} pods/s  CPU ms per pod: {cpu}, API server and etcd {run.api_cpu_ms:.2f}; "
        f"writes per pod: {sum(run.writes.values()):.2f} ({writes}); load {run.load:.1f}",
        file=sys.stderr,
        flush=True,
    )
    return run


def _summary(runs: Sequence[Run], singles: Sequence[Single]) -> Json:
    rates = {pods: statistics.median(run.rate for run in runs if run.pods == pods) for pods in (GPU, SHARE)}
    return {
        "podsPerSecond": {pods: round(rate, 1) for pods, rate in rates.items()},
        "ratio": round(rates[SHARE] / rates[GPU], 3),
        "oneByOne": {kind: _of_kind([each for each in singles if each.pods == kind]) for kind in (GPU, FIRST, JOINER)},
    }


def _of_kind(singles: Sequence[Single]) -> Json:
    if not singles:
        raise SystemExit("no pods of one kind: a fraction of at most 0.5 has pods that join others")
    milliseconds = sorted(1000 * each.seconds for each in singles)
    writes = [each.writes for each in singles if each.writes is not None]
    return {
        "pods": len(singles),
        "p50Ms": round(milliseconds[len(milliseconds) // 2], 1),
        "p99Ms": round(milliseconds[max(0, -(-99 * len(milliseconds) // 100) - 1)], 1),
        "writes": round(statistics.mean(writes), 2),
    }


def _report(runs: Sequence[Run], singles: Sequence[Single], form: str) -> None:
    summary = _summary(runs, singles)
    if form == "json":
        print(json.dumps({**summary, "runs": [dataclasses.asdict(run) for run in runs]}, indent=2))
        return
    for pods, rate in summary["podsPerSecond"].items():
        print(f"{pods:18} {rate:7.1f} pods/s (median)")
    print(f"{'pods one by one':18} {'pods':>5} {'p50 ms':>8} {'p99 ms':>8} {'writes':>7}  events apart")
    for kind, line in summary["oneByOne"].items():
        most = f"of at most {MOST_WRITES[kind]:.0f}" if kind in MOST_WRITES else ""
        print(f"{kind:18} {line['pods']:5} {line['p50Ms']:8} {line['p99Ms']:8} {line['writes']:7}  {most}".rstrip())
    print(f"{SHARE} / {GPU}: {summary['ratio']:.3f} (at least {LEAST_RATIO})")
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.sharing", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--single", type=int, default=100, help="pods that are created one after the other")
    parser.add_argument("--fraction", default="0.5", help="what each pod asks for of a GPU")
    parser.add_argument("-o", dest="form", choices=("text", "json"), default="text")
    return parser.parse_args()


if __name__ == "__main__":
    chosen = _arguments()
    real_plane.require()
    _report(*asyncio.run(main(chosen)), chosen.form)
