"""The embedded API beside a real kube-apiserver, in one run: how fast, how much memory, and is anything quadratic?

Both servers are up at the same time and each step is done on one and then on the other, so that whatever else the
machine does falls on both. No kubelets and no schedulers: pods stay as they were made. Each step is done with a
number of objects and with twice that number: 2.0 times the time is linear. At the end light nodes run pods, which
a real control plane alone cannot.

    python -m benchmarks.api [--pods 5000] [--changes 1000] [--nodes 500] [-o json]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop
import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.api_load import WATCHERS, Load, until_ready
from tests.environments import binaries
from tests.environments.control_plane import ControlPlane
from tests.environments.embedded import Embedded

EMBEDDED, REAL = "embedded", "kube-apiserver"
MIB = 1 << 20
PODS_PER_NODE = 4
Act = Callable[[Load, int], Awaitable[float]]


@dataclass(frozen=True)
class Cost:
    """What a step took: seconds by the clock, and seconds of the server's own processors.

    The second hardly depends on what else the machine does.
    """

    seconds: float
    cpu: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.seconds + other.seconds, self.cpu + other.cpu)


@dataclass(frozen=True)
class Measured:
    """One step on one server, with `objects` and with twice as many."""

    step: str
    server: str
    objects: int
    once: Cost
    twice: Cost

    @property
    def rate(self) -> float:
        """Objects per second, of the larger run."""
        return 2 * self.objects / self.twice.seconds


@dataclass(frozen=True)
class Memory:
    server: str
    empty: int
    full: int


@dataclass(frozen=True)
class Server:
    name: str
    load: Load
    processes: tuple[int, ...]

    def memory(self) -> int:
        """Resident bytes of all its processes: a kube-apiserver is nothing without its etcd."""
        return sum(_resident(pid) for pid in self.processes)

    async def cost(self, act: Act, count: int) -> Cost:
        cpu = sum(_processor_seconds(pid) for pid in self.processes)
        seconds = await act(self.load, count)
        return Cost(seconds, sum(_processor_seconds(pid) for pid in self.processes) - cpu)


@dataclass(frozen=True)
class Report:
    pods: int
    measured: list[Measured]
    memory: list[Memory]
    without: str | None
    load_before: float
    load_after: float
    took: float


async def main(arguments: argparse.Namespace) -> Report:
    before, began = os.getloadavg()[0], time.monotonic()
    missing = binaries.obstacles(("etcd", "kube-apiserver"))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        servers = [stack.enter_context(_embedded(Path(folder)))]
        if missing is None:
            servers.append(stack.enter_context(_real(Path(folder))))
        await until_ready(Path(folder) / EMBEDDED / "kubeconfig")
        empty = {server.name: server.memory() for server in servers}
        measured = await _side_by_side(servers, pods=arguments.pods, changes=arguments.changes)
        memory = [Memory(server.name, empty[server.name], server.memory()) for server in servers]
        for server in servers:
            await server.load.close()
    measured.append(await _light(arguments.nodes))
    took = time.monotonic() - began
    return Report(2 * arguments.pods, measured, memory, missing, before, os.getloadavg()[0], took)


async def _side_by_side(servers: list[Server], *, pods: int, changes: int) -> list[Measured]:
    steps: list[tuple[str, int, Act]] = [
        ("create", pods, Load.create),
        ("list", pods, Load.list),
        ("patch", changes, Load.patch),
        (f"tell {WATCHERS} watchers", changes // 2, Load.fan_out),
    ]
    for server in servers:
        await server.load.warm_up()
    first: dict[tuple[str, str], Cost] = {}
    found: list[Measured] = []
    for twice in (False, True):
        for step, objects, act in steps:
            # The second half of the pods comes on top of the first; the other steps do all of it again.
            count = objects if not twice or act is Load.create else 2 * objects
            for server in servers:
                cost = await server.cost(act, count)
                _progress(f"{step} {count}: {server.name} {cost.seconds:.2f} s")
                key = (step, server.name)
                if not twice:
                    first[key] = cost
                    continue
                total = cost + first[key] if act is Load.create else cost
                found.append(Measured(step, server.name, objects, first[key], total))
    return found


async def _light(nodes: int) -> Measured:
    """Until all pods run on light nodes; the second time with twice the nodes and twice the pods."""
    took = []
    for count in (nodes, 2 * nodes):
        with tempfile.TemporaryDirectory() as folder:
            topology = Path(folder) / "topology.yaml"
            topology.write_text(yaml.safe_dump({"pools": [{"name": "light", "nodes": count, "light": True}]}))
            cluster = Embedded(Path(folder), "--bare", "--topology", str(topology))
            server = Server(EMBEDDED, Load(cluster.kubeconfig, scheduler="default-scheduler"), (cluster.pid,))
            try:
                await until_ready(cluster.kubeconfig, nodes=count)
                took.append(await server.cost(Load.run, PODS_PER_NODE * count))
            finally:
                await server.load.close()
                cluster.close()
        _progress(f"run {PODS_PER_NODE * count} on {count} light nodes: {took[-1].seconds:.2f} s")
    return Measured(f"run on {nodes} nodes", EMBEDDED, PODS_PER_NODE * nodes, took[0], took[1])


@contextmanager
def _embedded(folder: Path) -> Iterator[Server]:
    (folder / EMBEDDED).mkdir()
    cluster = Embedded(folder / EMBEDDED)
    try:
        yield Server(EMBEDDED, Load(cluster.kubeconfig, scheduler="nobody"), (cluster.pid,))
    finally:
        cluster.close()


@contextmanager
def _real(folder: Path) -> Iterator[Server]:
    plane = ControlPlane(folder / "real", controllers=False, without_admission=("ServiceAccount",))
    try:
        load = Load(plane.kubeconfig, scheduler="nobody")
        yield Server(REAL, load, (plane.api_server.pid, plane.etcd.pid))
    finally:
        plane.close()


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) << 10


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def show(report: Report, console: Console) -> None:
    table = Table(title="API servers, side by side")
    for column in ("step", "server"):
        table.add_column(column, no_wrap=True)
    for column in ("objects", "s", "twice", "x", "per s", "CPU ms", "x CPU"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in report.measured:
        table.add_row(
            row.step,
            row.server,
            f"{row.objects:,}",
            f"{row.once.seconds:.2f}",
            f"{row.twice.seconds:.2f}",
            f"{row.twice.seconds / row.once.seconds:.1f}",
            f"{row.rate:,.0f}",
            f"{row.twice.cpu * 500 / row.objects:.2f}",
            f"{row.twice.cpu / row.once.cpu:.1f}" if row.once.cpu else "",
        )
    console.print(table)
    console.print("x: with twice the objects, so 2.0 is linear; CPU ms: of the server, per object", highlight=False)
    for memory in report.memory:
        said = f"{memory.server}: {memory.empty / MIB:,.0f} MiB resident empty, {memory.full / MIB:,.0f} MiB"
        console.print(f"{said} with {report.pods:,} pods", highlight=False)
    if report.without:
        console.print(f"no kube-apiserver beside it: {report.without}", highlight=False)
    console.print(
        f"load average {report.load_before:.1f} before, {report.load_after:.1f} after; {os.cpu_count()} cores; "
        f"{report.took:.0f} s in all",
        highlight=False,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.api", description="The embedded API beside a real one.")
    parser.add_argument("--pods", type=int, default=5000, help="made first; then as many again (5000)")
    parser.add_argument("--changes", type=int, default=1000, help="patches; half as many are watched (1000)")
    parser.add_argument("--nodes", type=int, default=500, help=f"light nodes with {PODS_PER_NODE} pods each (500)")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args()


if __name__ == "__main__":
    chosen = _arguments()
    result = uvloop.run(main(chosen))
    if chosen.output == "json":
        print(json.dumps(dataclasses.asdict(result), indent=1))
    else:
        show(result, Console(width=None if sys.stdout.isatty() else 110))
