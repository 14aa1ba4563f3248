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
        labels = ["namespace", "pod", "device"]
        self._pods_used = Gauge(
            "apportion_node_pod_memory_used_mib",
            "GPU memory that the processes of a pod use, by slice or GPU",
            labels,
            registry=self.registry,
        )
        self._pods_asked = Gauge(
            "apportion_node_pod_memory_share_mib",
            "GPU memory that a pod has of a shared GPU",
            labels,
            registry=self.registry,
        )
        self._pods_above = Gauge(
            "apportion_node_pod_memory_exceeded",
            "1 while a pod uses more of a shared GPU than its share",
            labels,
            registry=self.registry,
        )
        self.exceeded = Counter(
            "apportion_node_memory_exceeded_total",
            "How often a pod began to use more of a shared GPU than its share",
            registry=self.registry,
        )
        self.ready = Gauge("apportion_node_ready", "1 while the node accepts pods with slices", registry=self.registry)

    def measure(self, processes: Iterable[Process]) -> None:
        used: dict[str, int] = {}
        for process in processes:
            if process.memory_mib is None:
                continue
            used[process.device] = used.get(process.device, 0) + process.memory_mib
        self.memory.clear()
        for device, amount in used.items():
            self.memory.labels(device).set(amount)

    def show_pods(self, uses: Iterable[tuple[str, str, str, int | None, int | None, bool]]) -> None:
        """Namespace, pod, device, MiB used if known, MiB of the share if there is one, whether that is exceeded."""
        for each in (self._pods_used, self._pods_asked, self._pods_above):
            each.clear()
        for namespace, pod, device, used, asked, above in uses:
            if used is not None:
                self._pods_used.labels(namespace, pod, device).set(used)
            if asked is not None:
                self._pods_asked.labels(namespace, pod, device).set(asked)
                self._pods_above.labels(namespace, pod, device).set(above)

    def count_slices(self, count: Callable[[], float]) -> None:
        self._slices.set_function(count)
