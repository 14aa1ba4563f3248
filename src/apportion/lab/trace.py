"""The openb trace: a production GPU cluster, its request lists, and the orders in which they arrive.

A folder with `nodes.csv`, `pods-<variant>.csv`, `orders-<variant>.json` and `published.json`, made from the
public repository hkust-adsl/kubernetes-scheduler-simulator (Apache-2.0). Amounts: CPU in milli, memory in MiB,
1000 milli per GPU.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from apportion.apis.errors import InputError

SOURCE = "https://github.com/hkust-adsl/kubernetes-scheduler-simulator"
VARIANTS = ("default", "cpu050", "cpu200", "gpushare40", "gpuspec10", "multigpu20")
MILLI = 1000


class TraceError(InputError):
    code = "TraceUnusable"


class TraceNode(NamedTuple):
    name: str
    cpu: int
    memory: int
    gpus: int
    model: str


class TracePod(NamedTuple):
    """A request: `gpus` GPUs of `milli` each, on one of `models` if any are named."""

    cpu: int
    memory: int
    gpus: int
    milli: int
    models: tuple[str, ...]

    @property
    def gpu(self) -> int:
        return self.gpus * self.milli


class Arrival(msgspec.Struct, frozen=True):
    """One seed: which pods come, in order, and each node's rank; where scores tie the lowest rank wins."""

    pods: list[int]
    node_rank: list[int]


@dataclass(frozen=True)
class Trace:
    variant: str
    nodes: tuple[TraceNode, ...]
    pods: tuple[TracePod, ...]
    arrivals: dict[str, Arrival]

    @property
    def capacity(self) -> int:
        return sum(node.gpus for node in self.nodes) * MILLI

    def arrival(self, seed: int) -> Arrival:
        found = self.arrivals.get(str(seed))
        if found is None:
            raise TraceError("--seeds", seed, f"the trace contains orders for {', '.join(sorted(self.arrivals))}")
        return found


def load(folder: Path, variant: str) -> Trace:
    """Nodes and pods come in the order of their names, as the orders count them."""
    nodes = sorted(_table(folder / "nodes.csv"), key=lambda row: row["sn"])
    pods = sorted(_table(folder / f"pods-{variant}.csv"), key=lambda row: row["name"])
    orders = msgspec.json.decode(_read(folder / f"orders-{variant}.json"), type=dict[str, Arrival])
    return Trace(
        variant,
        tuple(
            TraceNode(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
            for row in nodes
        ),
        tuple(_pod(row) for row in pods),
        orders,
    )


def published(folder: Path) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Allocation ratios as the experiment's authors published them."""
    return msgspec.json.decode(_read(folder / "published.json"), type=dict[str, dict[str, dict[str, dict[str, float]]]])


def there(folder: Path) -> bool:
    return (folder / "nodes.csv").is_file()


def _pod(row: dict[str, str]) -> TracePod:
    gpus = int(row["num_gpu"])
    models = tuple(row.get("gpu_spec", "").split("|")) if row.get("gpu_spec") else ()
    milli = int(row["gpu_milli"]) if gpus else 0
    return TracePod(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, milli, models)


def _table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(_read(path).decode().splitlines()))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        fix = f"is not readable ({error.strerror}); --data requires a directory created from {SOURCE}"
        raise TraceError("--data", str(path), fix) from error
