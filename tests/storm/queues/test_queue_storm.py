"""A storm over queues: tenants that want more than there is, leaders that die, nodes and queues that come and go.

When it is over, the workloads stay: everything that can run must run then, and nothing may be evicted any more.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.environments.waiting import NeverHappenedError, until
from tests.storm.disturbances import create_namespace
from tests.storm.observer import CLAIMS, PODS, Observer
from tests.storm.queues.cluster_state import GPU, STORM, UNITS, ClusterState, ObservedPod, ObservedQueue
from tests.storm.queues.queue_clients import QueueClient
from tests.storm.queues.queue_disturbances import QueueDisturbances, keep_logs
from tests.storm.queues.queue_observer import GROUPS, QueueObserver
from tests.storm.queues.queue_tree import QUEUES, TREE
from tests.storm.raging import all_ready, becomes_empty, rage, told
from tests.story.serving_cluster import ServingCluster

Json = dict[str, Any]
FULL = os.environ.get("APPORTION_SOAK") == "1"
SECONDS = int(os.environ.get("APPORTION_STORM_SECONDS", "0")) or (1800 if FULL else 60)
CLIENTS = 6
NODES = 3
STALE = 15
LEADERLESS = 60  # the longest time without a leader that gets anything done
SUCCESSOR_SECONDS = 120  # a place is held for a successor that does not come
CALM = 20
TOPOLOGY = Path(__file__).parent / "queue_topology.yaml"
SCHEDULER = "/apis/apps/v1/namespaces/das-operator/deployments/das-scheduler"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServingCluster]:
    serving = ServingCluster(tmp_path, "--topology", str(TOPOLOGY), "--restart-backoff", "0", patience=120)
    try:
        template = serving.api.get(SCHEDULER)["spec"]["template"]
        (container,) = template["spec"]["containers"]
        container["env"].append({"name": "APPORTION_STALE_GROUP_SECONDS", "value": str(STALE)})
        serving.api.merge(SCHEDULER, {"spec": {"replicas": 2, "template": template}})
        until(lambda: all_ready(serving, NODES), "both schedulers are ready", within=120, pause=0.5)
        for queue in TREE:
            serving.api.create(QUEUES, queue)
        yield serving
    finally:
        serving.close()


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_q05_q06_q07_q09_a_storm_over_queues_breaks_no_limit_and_comes_to_rest(cluster: ServingCluster) -> None:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    namespaces = [f"tenant-{number}" for number in range(CLIENTS)]
    for name in namespaces:
        create_namespace(cluster.api, name)
    clients = [QueueClient(cluster.kubeconfig, name, seed + number) for number, name in enumerate(namespaces)]
    devices = Observer(cluster.kubeconfig, cluster.nodes_dir)
    observer = QueueObserver(cluster.kubeconfig, stale=STALE + LEADERLESS)

    def node_deleted(name: str) -> None:
        devices.node_deleted(name)
        observer.node_deleted(name)

    disturbances = QueueDisturbances(cluster, namespaces, seed, on_node_deleted=node_deleted)
    with devices.observing(), observer.observing(), _evidence(cluster, observer):
        rage(clients, disturbances, SECONDS)
        disturbances.settle()
        print(f"{sum(client.created for client in clients)} workloads; {told(disturbances.counts)}")
        assert not [text for client in clients for text in client.unexpected]
        until(lambda: all_ready(cluster, NODES), "every replica of every plane is ready again", within=300, pause=1)
        _comes_to_rest(cluster, observer)
        for name in namespaces:
            cluster.api.delete(f"/api/v1/namespaces/{name}")
        becomes_empty(lambda: _storm_pods(cluster))
        becomes_empty(lambda: [claim["metadata"]["name"] for claim in cluster.api.items(CLAIMS)])
        becomes_empty(cluster.left_on_nodes)
        _every_gpu_can_be_used(cluster)
    print(f"{told(devices.counts)} {told(observer.counts)}")
    print(f"{observer.evictions()} evictions; groups ran in parts for {observer.longest_partial:.0f} s at most")
    assert not devices.violations, devices.violations
    assert not observer.violations, observer.violations
    assert devices.counts["containers audited"]
    assert observer.counts["uses compared with limits"]


def _comes_to_rest(cluster: ServingCluster, observer: QueueObserver) -> None:
    calm = 0

    def unrest() -> list[str]:
        return _unrest(_state(cluster))

    def rest() -> bool:
        nonlocal calm
        calm = 0 if unrest() else calm + 1
        return calm >= 2

    try:
        until(rest, "everything that can run runs", within=180 + SUCCESSOR_SECONDS, pause=1)
    except NeverHappenedError:
        raise AssertionError(unrest()) from None
    before = observer.evictions()
    pods = _placed(cluster)
    time.sleep(CALM)
    assert observer.evictions() == before, "pods are evicted though nothing happens"
    assert _placed(cluster) == pods
    assert not unrest()


@contextmanager
def _evidence(cluster: ServingCluster, observer: QueueObserver) -> Iterator[None]:
    """If it fails: objects, logs and what was observed, beside the log of the cluster."""
    try:
        yield
        assert not observer.violations, observer.violations
    except BaseException:
        folder = cluster.log.parent
        for path in (PODS, QUEUES, GROUPS, CLAIMS, "/api/v1/nodes", "/api/v1/events"):
            name = path.rsplit("/", 1)[-1]
            (folder / f"{name}.json").write_text(json.dumps(cluster.api.items(path), indent=1))
        keep_logs(cluster)
        (folder / "history.txt").write_text("\n".join(observer.history))
        print(f"objects, logs and what was observed are in {folder}")
        raise


def _placed(cluster: ServingCluster) -> dict[str, str]:
    return {pod.uid: pod.node for pod in _state(cluster).running()}


def _unrest(state: ClusterState) -> list[str]:
    """What must not be once nothing happens any more."""
    terminating = [f"{pod.name} is terminating" for pod in state.pods.values() if not pod.active]
    partial = [f"{count} of {least} pods of {key} run" for key, count, least in state.partial_groups()]
    nominated = [
        f"{pod.name} waits for {pod.nominated}" for pod in state.pods.values() if pod.pending and pod.nominated
    ]
    return [
        *terminating,
        *partial,
        *nominated,
        *(f"{each} could run" for each in state.could_run()),
        *(f"{each} could be reclaimed" for each in state.could_reclaim()),
    ]


def _state(cluster: ServingCluster) -> ClusterState:
    api = cluster.api
    queues = [ObservedQueue.of(each) for each in api.items(QUEUES)]
    listed = api.items(f"{PODS}?labelSelector={STORM}%3Dyes")
    pods = [ObservedPod.of(each) for each in listed if each["status"].get("phase") not in ("Succeeded", "Failed")]
    state = ClusterState(
        queues={each.name: each for each in queues},
        pods={each.uid: each for each in pods},
        minimums={
            (each["metadata"]["namespace"], each["metadata"]["name"]): each["spec"]["minMember"]
            for each in api.items(GROUPS)
        },
    )
    _find_room(state, api.items("/api/v1/nodes"), api.items(CLAIMS))
    return state


def _find_room(state: ClusterState, nodes: list[Json], claims: list[Json]) -> None:
    for node in nodes:
        name = node["metadata"]["name"]
        held = sum(pod.node == name and pod.resource == GPU for pod in state.pods.values())
        state.free_gpus[name] = int(node["status"]["allocatable"].get(GPU, 0)) - held
        taken = {
            unit
            for claim in claims
            if claim["spec"]["nodename"] == name
            for unit in range(claim["spec"]["migPlacement"]["start"], _end(claim))
        }
        state.free_units[name] = [set(range(UNITS)) - taken]


def _end(claim: Json) -> int:
    place = claim["spec"]["migPlacement"]
    return int(place["start"] + place["size"])


def _every_gpu_can_be_used(cluster: ServingCluster) -> None:
    """No place is held for somebody who does not come: without a queue, all GPUs are taken at once."""
    create_namespace(cluster.api, "afterwards")
    for resource, count in ((GPU, 3 * NODES), ("nvidia.com/mig-1g.5gb", 7 * NODES)):
        for number in range(count):
            cluster.api.create(
                "/api/v1/namespaces/afterwards/pods", _pod(f"{resource[-3:].lower()}-{number}", resource)
            )

    def running() -> int:
        pods = cluster.api.items("/api/v1/namespaces/afterwards/pods")
        return sum(pod["status"].get("phase") == "Running" for pod in pods)

    until(lambda: running() == 10 * NODES, "every GPU is in use", within=SUCCESSOR_SECONDS + 120, pause=0.5)
    cluster.api.delete("/api/v1/namespaces/afterwards")
    becomes_empty(lambda: _storm_pods(cluster))


def _storm_pods(cluster: ServingCluster) -> list[str]:
    return [pod["metadata"]["name"] for pod in cluster.api.items(f"{PODS}?labelSelector={STORM}%3Dyes")]


def _pod(name: str, resource: str) -> Json:
    work = ["sh", "-c", "env | grep ^NVIDIA_VISIBLE_DEVICES=; sleep 100000"]
    container = {"name": "busy", "image": "busybox:1.36", "command": work, "resources": {"limits": {resource: "1"}}}
    spec = {"schedulerName": "kai-scheduler", "terminationGracePeriodSeconds": 1, "containers": [container]}
    labels = {STORM: "yes", "kai.scheduler/queue": "default-queue"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
