"""What the agent counts. Each agent has its own registry, so that several can live in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from apportion.node.hardware.partitioner import Process


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.prepared = Histogram(
            "apportion_node_prestart_seconds",
            "Time from PreStartContainer to its answer",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=self.registry,
        )
        self.problems = Counter(
            "apportion_node_prestart_problems_total",
            "PreStartContainer calls that failed, by reason",
            ["reason"],
            registry=self.registry,
        )
        self._slices = Gauge("apportion_node_slices", "Slices in the agent's records", registry=self.registry)
        self.foreign = Gauge(
            "apportion_node_unknown_slices", "Slices that the agent did not create", registry=self.registry
        )
        self.memory = Gauge(
            "apportion_node_device_memory_used_mib",
            "GPU memory that processes use, by slice or GPU",
            ["device"],
            registry=self.registry,
        )
        self.ready = Gauge("apportion_node_ready", "1 while the node accepts pods with slices", registry=self.registry)

    def measure(self, processes: Iterable[Process]) -> None:
        used: dict[str, int] = {}
        for process in processes:
            used[process.device] = used.get(process.device, 0) + process.memory_mib
        self.memory.clear()
        for device, amount in used.items():
            self.memory.labels(device).set(amount)

    def count_slices(self, count: Callable[[], float]) -> None:
        self._slices.set_function(count)
