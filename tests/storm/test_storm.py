"""A storm over all planes: many tenants, every disturbance that can be made from outside, and one observer."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environments.waiting import until
from tests.storm.clients import StormClient
from tests.storm.disturbances import Disturbances, create_namespace
from tests.storm.observer import CLAIMS, PODS, Observer
from tests.storm.raging import all_ready, becomes_empty, rage, told
from tests.story.serving_cluster import ServingCluster

FULL = os.environ.get("APPORTION_SOAK") == "1"
SECONDS = 1800 if FULL else 60
CLIENTS = 8
NODES = 3
PODS_IN_ALL = 300
TOPOLOGY = Path(__file__).parent / "topology.yaml"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServingCluster]:
    serving = ServingCluster(tmp_path, "--topology", str(TOPOLOGY), "--restart-backoff", "0", patience=120)
    try:
        serving.api.merge("/apis/apps/v1/namespaces/das-operator/deployments/das-scheduler", {"spec": {"replicas": 2}})
        yield serving
    finally:
        serving.close()


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_t02_s06_s08_a_storm_oversells_nothing_and_leaves_nothing_behind(cluster: ServingCluster) -> None:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    namespaces = [f"tenant-{number}" for number in range(CLIENTS)]
    for name in namespaces:
        create_namespace(cluster.api, name)
    clients = [
        StormClient(cluster.kubeconfig, name, seed + number, pods=-(-PODS_IN_ALL // CLIENTS))
        for number, name in enumerate(namespaces)
    ]
    observer = Observer(cluster.kubeconfig, cluster.nodes_dir)
    with observer.observing():
        disturbances = Disturbances(cluster, namespaces, seed, on_node_deleted=observer.node_deleted)
        rage(clients, disturbances, SECONDS)
        print(f"{sum(client.created for client in clients)} pods; {told(disturbances.counts)}")
        assert not [text for client in clients for text in client.unexpected]
        until(lambda: all_ready(cluster, NODES), "every replica of every plane is ready again", within=300, pause=1)
        for name in namespaces:
            cluster.api.delete(f"/api/v1/namespaces/{name}")
        _nothing_is_left(cluster)
        create_namespace(cluster.api, "afterwards")
        _everything_can_be_used(cluster)
        cluster.api.delete("/api/v1/namespaces/afterwards")
        _nothing_is_left(cluster)
    print(told(observer.counts))
    assert not observer.violations, observer.violations
    assert observer.counts["containers audited"]


def _nothing_is_left(cluster: ServingCluster) -> None:
    def claims() -> list[str]:
        return [claim["metadata"]["name"] for claim in cluster.api.items(CLAIMS)]

    becomes_empty(lambda: _storm_pods(cluster))
    becomes_empty(claims)
    becomes_empty(cluster.left_on_nodes)


def _everything_can_be_used(cluster: ServingCluster) -> None:
    """As many pods as the nodes have places for run at the same time."""
    for profile, count in (("1g.5gb", 42), ("3g.20gb", 6)):
        for number in range(count):
            cluster.api.create("/api/v1/namespaces/afterwards/pods", _pod(f"{profile[0]}g-{number}", profile))
    until(lambda: len(_running(cluster)) == 48, "48 pods run", within=300, pause=0.5)


def _storm_pods(cluster: ServingCluster) -> list[str]:
    pods = cluster.api.items(f"{PODS}?labelSelector=storm%3Dyes")
    return [pod["metadata"]["name"] for pod in pods]


def _running(cluster: ServingCluster) -> list[str]:
    pods = cluster.api.items("/api/v1/namespaces/afterwards/pods")
    return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]


def _pod(name: str, profile: str) -> dict[str, object]:
    work = ["sh", "-c", "env | grep ^NVIDIA_VISIBLE_DEVICES=; sleep 100000"]
    limits = {f"nvidia.com/mig-{profile}": "1"}
    container = {"name": "busy", "image": "busybox:1.36", "command": work, "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"storm": "yes"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }
