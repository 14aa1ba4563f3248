"""What happens to the cluster during the storm: planes are killed and stopped, namespaces and nodes are deleted."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.environments.api import Api, RefusedError
from tests.environments.waiting import until
from tests.story.serving_cluster import ServingCluster

Json = dict[str, Any]
PAUSE = 1.5
LONGEST_STOP = 20.0  # longer than the lease of the scheduler
NODE_FIELDS = ("labels", "annotations")


class Disturbances:
    """One disturbance after the other; when it ends, no process is stopped, and every node and namespace is there."""

    pause = PAUSE

    def __init__(
        self, cluster: ServingCluster, namespaces: list[str], seed: int, *, on_node_deleted: Callable[[str], None]
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._api = Api(cluster.kubeconfig)
        self._namespaces = namespaces
        self._dice = random.Random(seed)
        self._on_node_deleted = on_node_deleted
        self._stopped: list[tuple[int, threading.Timer]] = []
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def actions(self) -> list[tuple[int, Callable[[], None]]]:
        """What can happen, and how often."""
        return [
            (8, self._kill_a_plane),
            (8, self._stop_a_plane),
            (2, self._delete_a_namespace),
            (1, self._delete_a_node),
        ]

    def run(self) -> None:
        actions = self.actions()
        try:
            while not self._stopping.wait(self._dice.uniform(0, self.pause)):
                (action,) = self._dice.choices([each for _, each in actions], [weight for weight, _ in actions])
                action()
        finally:
            for pid, timer in self._stopped:
                timer.cancel()
                _continue(pid)

    def _kill_a_plane(self) -> None:
        app, pid = self._a_process()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.counts[f"{app} killed"] += 1

    def _stop_a_plane(self) -> None:
        app, pid = self._a_process()
        seconds = self._dice.choice([0.3, 1.0, 3.0, 8.0, LONGEST_STOP])
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self.counts[f"{app} stopped"] += 1
            timer = threading.Timer(seconds, _continue, [pid])
            self._stopped.append((pid, timer))
            timer.start()

    def _a_process(self) -> tuple[str, int]:
        return self._dice.choice(until(self._cluster.plane_processes, "a plane runs", within=120))

    def _delete_a_namespace(self) -> None:
        name = self._dice.choice(self._namespaces)
        self._api.delete(f"/api/v1/namespaces/{name}")
        self.counts["namespaces deleted"] += 1
        until(lambda: not self._api.exists(f"/api/v1/namespaces/{name}"), f"namespace {name} is gone", within=120)
        create_namespace(self._api, name)

    def _delete_a_node(self) -> None:
        node = self._dice.choice(self._api.items("/api/v1/nodes"))
        name = node["metadata"]["name"]
        self._on_node_deleted(name)
        self._api.delete(f"/api/v1/nodes/{name}")
        self.counts["nodes deleted"] += 1
        self._stopping.wait(self._dice.uniform(0, 6))
        self._on_node_deleted(name)  # and what was bound to it while it was being deleted
        kept = {field: node["metadata"].get(field, {}) for field in NODE_FIELDS}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name} | kept}
        with suppress(RefusedError):
            self._api.create("/api/v1/nodes", body)


def create_namespace(api: Api, name: str) -> None:
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def _continue(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
