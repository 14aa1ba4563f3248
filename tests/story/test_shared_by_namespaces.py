"""Document 001: "Pods sharing a single GPU device can reside in different namespaces", under quotas of two queues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.story.serving_cluster import ServingCluster
from tests.story.slice_story import NamespacedKubectl, until

Json = dict[str, Any]
GPU, GROUP = "nvidia.com/gpu", "runai-gpu-group"
TEAMS = ("team-a", "team-b")
HALF = 0.5


@pytest.fixture
def teams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingCluster]:
    """A cluster with two GPUs; each team has a namespace, and a queue with half a GPU."""
    cluster = ServingCluster(tmp_path_factory.mktemp("teams"), "--sharing", "--restart-backoff", "0.2")
    for name in TEAMS:
        cluster.kubectl("create", "namespace", name)
        gpu = {"quota": HALF, "limit": HALF, "overQuotaWeight": 1}
        queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}}
        cluster.api.create("/apis/scheduling.run.ai/v2/queues", queue | {"spec": {"resources": {"gpu": gpu}}})
    yield cluster
    cluster.close()


class Team:
    """A namespace and the queue of the same name."""

    def __init__(self, cluster: ServingCluster, name: str) -> None:
        self.tell, self._name = NamespacedKubectl(cluster, name), name

    def half(self, pod: str) -> None:
        metadata = {
            "name": pod,
            "labels": {"kai.scheduler/queue": self._name},
            "annotations": {"gpu-fraction": str(HALF)},
        }
        spec = self.tell.pod_spec({}) | {"schedulerName": "kai-scheduler"}
        self.tell.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def get(self, pod: str) -> Json:
        return dict(json.loads(self.tell.kubectl("get", "pod", pod, "-o", "json")))

    def runs(self, pod: str) -> Json:
        until(
            lambda: self.get(pod)["status"].get("phase") == "Running",
            lambda: self.tell.kubectl("describe", "pod", pod),
            within=90,
        )
        return self.get(pod)

    def waits(self, pod: str) -> str:
        def said() -> str:
            conditions = self.get(pod)["status"].get("conditions", ())
            return next((str(each["message"]) for each in conditions if each["type"] == "PodScheduled"), "")

        until(lambda: bool(said()), lambda: self.tell.kubectl("describe", "pod", pod))
        return said()

    def gpus(self, field: str) -> str:
        queue = json.loads(self.tell.cluster.kubectl("get", "queue", self._name, "-o", "json"))
        return str(queue.get("status", {}).get(field, {}).get(GPU, ""))

    def expect_gpus(self, **wanted: str) -> None:
        """Fields of the queue's status."""

        def found() -> dict[str, str]:
            return {field: self.gpus(field) for field in wanted}

        until(lambda: found() == wanted, lambda: f"queue {self._name} has {found()}, not {wanted}")


@pytest.mark.kubectl
@pytest.mark.timeout(300)
def test_g04_q02_pods_of_two_namespaces_and_queues_share_one_gpu(teams: ServingCluster) -> None:
    a, b = (Team(teams, name) for name in TEAMS)
    a.half("first")
    b.half("first")
    pods = [a.runs("first"), b.runs("first")]
    (reservation,) = a.tell.items("pods", namespace="kai-resource-reservation")
    groups = {pod["metadata"]["labels"][GROUP] for pod in (*pods, reservation)}
    assert len(groups) == 1
    gpus = [json.loads(pod["metadata"]["annotations"]["apportion.io/shared-gpus"]) for pod in pods]
    assert gpus[0] == gpus[1]
    for team in (a, b):
        team.expect_gpus(allocated="500m", requested="500m")

    a.half("second")
    message = a.waits("second")
    assert "queue team-a" in message, message
    assert "limit" in message, message
    a.expect_gpus(allocated="500m", requested="1")
    assert len(a.tell.items("pods", namespace="kai-resource-reservation")) == 1
    assert not a.get("second")["spec"].get("nodeName")

    a.tell.kubectl("delete", "pod", "first", "--wait=true")
    a.runs("second")
    for team in (a, b):
        team.expect_gpus(allocated="500m", requested="500m")
    a.tell.kubectl("delete", "pod", "second", "--wait=true")
    b.tell.kubectl("delete", "pod", "first", "--wait=true")
    until(lambda: not a.tell.items("pods", namespace="kai-resource-reservation"), lambda: "a reservation is left")
    for team in (a, b):
        team.expect_gpus(allocated="0", requested="0")
