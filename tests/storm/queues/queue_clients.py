"""Tenants that create and delete Deployments, gangs and single pods in all queues."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.environments.api import Api, RefusedError
from tests.storm.clients import EXPECTED_CODES
from tests.storm.queues.queue_tree import LEAVES

Json = dict[str, Any]
AT_ONCE = 4  # workloads of one client
PAUSE = 4.0
GPU, SMALL, MIDDLE, LARGE = (
    "nvidia.com/gpu",
    "nvidia.com/mig-1g.5gb",
    "nvidia.com/mig-2g.10gb",
    "nvidia.com/mig-3g.20gb",
)
REQUESTS = [(5, GPU), (3, SMALL), (2, MIDDLE), (1, LARGE)]
CLASSES = [(5, "train"), (3, "build-preemptible"), (2, "build")]  # the last one is not preemptible
QUEUE_LABEL = "kai.scheduler/queue"


class QueueClient:
    """Works in its own namespace until it is stopped."""

    def __init__(self, kubeconfig: Path, namespace: str, seed: int) -> None:
        self.created = 0
        self.refused: Counter[int] = Counter()
        self.unexpected: list[str] = []
        self._kubeconfig, self._namespace = kubeconfig, namespace
        self._dice = random.Random(seed)
        self._alive: list[list[str]] = []  # the paths of each workload
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        api = Api(self._kubeconfig)
        while not self._stopping.is_set():
            try:
                if len(self._alive) >= AT_ONCE or (self._alive and self._dice.random() < 0.3):
                    self._delete(api)
                else:
                    self._create(api)
            except RefusedError as error:
                self.refused[error.code] += 1
                if error.code not in EXPECTED_CODES:
                    self.unexpected.append(str(error))
            self._stopping.wait(self._dice.uniform(0, PAUSE))

    def _delete(self, api: Api) -> None:
        for path in self._alive.pop(self._dice.randrange(len(self._alive))):
            api.delete(path, {"propagationPolicy": "Background"})

    def _create(self, api: Api) -> None:
        kinds: list[tuple[int, Callable[[str], list[tuple[str, Json]]]]] = [
            (4, self._deployment),
            (3, self._gang),
            (3, self._pod),
        ]
        (kind,) = self._dice.choices([each for _, each in kinds], [weight for weight, _ in kinds])
        name = f"w{self.created}"
        self.created += 1
        made: list[str] = []
        self._alive.append(made)
        for collection, body in kind(name):
            made.append(f"{collection}/{name}")
            api.create(collection, body)

    def _deployment(self, name: str) -> list[tuple[str, Json]]:
        spec = {"replicas": self._dice.randint(1, 4), "selector": {"matchLabels": {"app": name}}}
        return [self._owner("apps", "Deployment", name, spec)]

    def _gang(self, name: str) -> list[tuple[str, Json]]:
        """A Job with as many pods as its PodGroup wants, or one more."""
        minimum = self._dice.randint(2, 4)
        pods = minimum + self._dice.randint(0, 1)
        spec = {"parallelism": pods, "completions": pods, "backoffLimit": 1000}
        job = self._owner("batch", "Job", name, spec, annotations={"pod-group-name": name})
        group = {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"minMember": minimum, "queue": job[1]["metadata"]["labels"][QUEUE_LABEL]},
        }
        path = f"/apis/scheduling.run.ai/v2alpha2/namespaces/{self._namespace}/podgroups"
        both = [(path, group), job]
        self._dice.shuffle(both)
        return both

    def _pod(self, name: str) -> list[tuple[str, Json]]:
        body = self._template(name, self._dice.choice(LEAVES), {}, "Never")
        body["metadata"]["name"] = name
        return [(f"/api/v1/namespaces/{self._namespace}/pods", {"apiVersion": "v1", "kind": "Pod"} | body)]

    def _owner(
        self, group: str, kind: str, name: str, spec: Json, *, annotations: Json | None = None
    ) -> tuple[str, Json]:
        queue = self._dice.choice(LEAVES)
        restart = "Never" if kind == "Job" else "Always"
        body = {
            "apiVersion": f"{group}/v1",
            "kind": kind,
            "metadata": {"name": name, "labels": {QUEUE_LABEL: queue}},
            "spec": spec | {"template": self._template(name, queue, annotations or {}, restart)},
        }
        return f"/apis/{group}/v1/namespaces/{self._namespace}/{kind.lower()}s", body

    def _template(self, name: str, queue: str, annotations: Json, restart: str) -> Json:
        limits = {self._one_of(REQUESTS): "1"}
        container = {
            "name": "busy",
            "image": "busybox:1.36",
            "command": ["sh", "-c", "env | grep ^NVIDIA_VISIBLE_DEVICES=; sleep 100000"],
            "resources": {"limits": limits},
        }
        return {
            "metadata": {"labels": {"storm": "yes", "app": name, QUEUE_LABEL: queue}, "annotations": annotations},
            "spec": {
                "schedulerName": "kai-scheduler",
                "priorityClassName": self._one_of(CLASSES),
                "restartPolicy": restart,
                "terminationGracePeriodSeconds": self._dice.choice([0, 1, 3]),
                "containers": [container],
            },
        }

    def _one_of(self, weighted: list[tuple[int, str]]) -> str:
        return self._dice.choices([each for _, each in weighted], [weight for weight, _ in weighted])[0]
