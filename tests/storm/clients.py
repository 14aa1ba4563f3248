"""Tenants that create and delete pods of every kind that uses a GPU, without regard for what happens around them."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from tests.environments.api import Api, RefusedError

Json = dict[str, Any]
AT_ONCE = 9  # pods of one client; eight clients ask for more than the nodes have
PAUSE = 1.2
REQUESTS: list[tuple[int, Json]] = [
    (6, {"nvidia.com/mig-1g.5gb": "1"}),
    (3, {"nvidia.com/mig-2g.10gb": "1"}),
    (2, {"nvidia.com/mig-1g.5gb": "2"}),
    (2, {"nvidia.com/mig-1g.5gb": "1", "nvidia.com/mig-2g.10gb": "1"}),
    (1, {"nvidia.com/mig-7g.40gb": "1"}),
    (3, {"nvidia.com/mig-3g.20gb": "1"}),  # exists as a static device
    (2, {"nvidia.com/gpu": "1"}),
]
ENDINGS = ["sleep 100000", "sleep 100000", "sleep 4", "sleep 3; exit 1"]
# Namespaces come and go, and admission waits for a webhook that was killed or stopped.
EXPECTED_CODES = {403, 404, 409, 500, 504}


class StormClient:
    """Works in its own namespace until it is stopped and has created its share of pods."""

    def __init__(self, kubeconfig: Path, namespace: str, seed: int, *, pods: int) -> None:
        self.namespace = namespace
        self.created = 0
        self.refused: Counter[int] = Counter()
        self.unexpected: list[str] = []
        self._kubeconfig = kubeconfig
        self._dice = random.Random(seed)
        self._pods = pods
        self._alive: list[str] = []
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        api = Api(self._kubeconfig)
        while not self._stopping.is_set() or self.created < self._pods:
            try:
                if len(self._alive) >= AT_ONCE or (self._alive and self._dice.random() < 0.3):
                    self._delete_pod(api)
                else:
                    self._create_pod(api)
            except RefusedError as error:
                self.refused[error.code] += 1
                if error.code not in EXPECTED_CODES:
                    self.unexpected.append(str(error))
            self._stopping.wait(self._dice.uniform(0, PAUSE))

    def _create_pod(self, api: Api) -> None:
        name = f"pod-{self.created}"
        api.create(self._path(), self._pod(name))
        self.created += 1
        self._alive.append(name)

    def _delete_pod(self, api: Api) -> None:
        name = self._alive.pop(self._dice.randrange(len(self._alive)))
        options = {"gracePeriodSeconds": 0} if self._dice.random() < 0.3 else None
        api.delete(f"{self._path()}/{name}", options)

    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def _pod(self, name: str) -> Json:
        weights = [weight for weight, _ in REQUESTS]
        (limits,) = self._dice.choices([request for _, request in REQUESTS], weights)
        work = f"env | grep ^NVIDIA_VISIBLE_DEVICES=; {self._dice.choice(ENDINGS)}"
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"storm": "yes"}},
            "spec": {
                "restartPolicy": self._dice.choice(["Always", "OnFailure", "Never"]),
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": "busy",
                        "image": "busybox:1.36",
                        "command": ["sh", "-c", work],
                        "resources": {"limits": limits},
                    }
                ],
            },
        }
