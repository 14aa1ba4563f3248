"""How a storm is run, and how it ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Protocol

from tests.environments.waiting import NeverHappenedError, until
from tests.storm.disturbances import Disturbances
from tests.story.serving_cluster import ServingCluster

PROGRESS = 30


class Client(Protocol):
    """Works until it is stopped."""

    created: int

    def run(self) -> None: ...

    def stop(self) -> None: ...


def rage(clients: Sequence[Client], disturbances: Disturbances, seconds: float) -> None:
    with ThreadPoolExecutor(len(clients) + 1) as threads:
        disturbing = threads.submit(disturbances.run)
        working = [threads.submit(client.run) for client in clients]
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end and not disturbing.done():
                time.sleep(min(PROGRESS, max(0.0, end - time.monotonic())))
                pods = sum(client.created for client in clients)
                print(f"{pods} created, {told(disturbances.counts)}", flush=True)
        finally:
            for client in clients:
                client.stop()
            wait(working)
            disturbances.stop()
    for work in (*working, disturbing):
        work.result()


def becomes_empty(left: Callable[[], list[str]]) -> None:
    with suppress(NeverHappenedError):
        until(lambda: not left(), "nothing is left", within=180, pause=0.5)
    assert left() == []


def all_ready(cluster: ServingCluster, nodes: int) -> bool:
    apps = "/apis/apps/v1/namespaces/das-operator"
    deployments = [each["status"] | each["spec"] for each in cluster.api.items(f"{apps}/deployments")]
    (agents,) = (each["status"] for each in cluster.api.items(f"{apps}/daemonsets"))
    return agents["numberReady"] == nodes and all(each.get("readyReplicas") == each["replicas"] for each in deployments)


def told(counts: Mapping[str, int]) -> str:
    return json.dumps(dict(sorted(counts.items())))
