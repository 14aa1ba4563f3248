"""How long a kubelet waits for the agent: Allocate and PreStartContainer with 1, 10 and 100 containers at once.

The agent is a process of its own with emulated GPUs, the API server is the embedded one over HTTP, the calls are
gRPC over unix sockets, as between a kubelet and any device plugin. PreStartContainer includes everything that is
done before a container starts: finding its claims, making the slice, the CDI file, both states of the claim.

    python -m benchmarks.node [--rounds 5] [-o json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Awaitable
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from pocketkube.api.http import HttpShell
from tests.node.agent_node import AgentNode, agent_node
from tests.node.test_process import start

AT_ONCE = (1, 10, 100)
PER_GPU = 7
GPUS = {"apportion.io/emulated-gpus": json.dumps([{"product": "NVIDIA A100-PCIE-40GB", "count": 15}])}
RESOURCE = "mig.das.com/1g.5gb"


@dataclass(frozen=True)
class Row:
    """One call with so many containers at once; milliseconds."""

    call: str
    containers: int
    calls: int
    p50: float
    p99: float
    longest: float


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("-o", choices=("table", "json"), default="table")
    chosen = options.parse_args()
    rows = asyncio.run(measure(chosen.rounds))
    load = os.getloadavg()[0]
    if chosen.o == "json":
        print(json.dumps({"load": load, "rows": [asdict(row) for row in rows]}, indent=1))
        return
    table = Table("call", "containers at once", "calls", "p50 ms", "p99 ms", "longest ms")
    for row in rows:
        figures = (f"{value:.1f}" for value in (row.p50, row.p99, row.longest))
        table.add_row(row.call, str(row.containers), str(row.calls), *figures)
    Console().print(table)
    print(f"load average {load:.1f}")


async def measure(rounds: int) -> list[Row]:
    async with agent_node(annotations=GPUS) as node:
        shell = HttpShell(node.server, None)
        await shell.start()
        process = await start(node, shell)
        try:
            await node.eventually(lambda: node.kubelet.totals().get(RESOURCE) == (105, 105), "the agent is ready")
            rows: list[Row] = []
            for containers in AT_ONCE:
                rows += await _with(node, containers, rounds)
            return rows
        finally:
            process.terminate()
            await process.communicate()
            await shell.stop()


async def _with(node: AgentNode, containers: int, rounds: int) -> list[Row]:
    allocated: list[float] = []
    started: list[float] = []
    for _ in range(rounds):
        pods = [
            await node.scheduled(f"p-{number}", start=number % PER_GPU, gpu=number // PER_GPU)
            for number in range(containers)
        ]
        plugin = node.kubelet._plugins[RESOURCE]  # noqa: SLF001  the kubelet's own connection to the agent
        ids = [[f"1g.5gb-{number}"] for number in range(containers)]
        allocated += await _timed([plugin.allocate(each) for each in ids])
        for pod in pods:  # as a kubelet does: one after the other, written down before anything starts
            await node.admit(pod)
        held = [entry[3].ids for pod in pods for entry in node.kubelet.ledger.entries() if entry[0] == _uid(pod)]
        started += await _timed([plugin.pre_start(each) for each in held])
        for pod in pods:
            await node.delete(pod)
        await node.eventually(node.clean, "everything is given back", seconds=120)
    return [_row("Allocate", containers, allocated), _row("PreStartContainer", containers, started)]


async def _timed(calls: list[Awaitable[object]]) -> list[float]:
    async def one(call: Awaitable[object]) -> float:
        begin = time.perf_counter()
        await call
        return (time.perf_counter() - begin) * 1000

    return list(await asyncio.gather(*(one(call) for call in calls)))


def _row(call: str, containers: int, taken: list[float]) -> Row:
    ordered = sorted(taken)
    p99 = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    return Row(call, containers, len(taken), statistics.median(taken), p99, ordered[-1])


def _uid(pod: dict[str, dict[str, str]]) -> str:
    return pod["metadata"]["uid"]


if __name__ == "__main__":
    main()
