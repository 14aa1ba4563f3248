"""Asks a real kube-scheduler which nodes of a world a pod may run on.

An API server without controllers holds the world (nobody taints silent nodes or collects pods there), and a
kube-scheduler with every default filter looks at all nodes and then asks our extender. The case is stored as the
API server stored it, defaults filled in, since that is what a scheduler sees.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.differential import volumes, worlds
from tests.environments.api import Api
from tests.environments.control_plane import ControlPlane
from tests.environments.waiting import until

JSON = dict[str, Any]
PORT = 7900
# The first would taint every node that has no kubelet; the second asks for tokens that no controller makes.
# The third keeps claims and volumes until a controller lets them go.
WITHOUT = ("TaintNodesByCondition", "ServiceAccount", "StorageObjectInUseProtection")


class Oracle:
    """A kube-scheduler that is queried and never schedules."""

    def __init__(self, folder: Path) -> None:
        self._plane = ControlPlane(folder, controllers=False, without_admission=WITHOUT)
        self._api: Api = self._plane.api
        self._record = self._plane.sandbox.data / "extender.jsonl"
        script = Path(__file__).with_name("extender.py")
        self._plane.sandbox.start("extender", [sys.executable, "-I", script, str(PORT), self._record])
        for name, labels in worlds.NAMESPACES.items():
            self._api.create("/api/v1/namespaces", _object("v1", "Namespace", {"name": name, "labels": labels}))
        overhead = {"handler": "runc", "overhead": {"podFixed": {"cpu": "150m", "memory": "100Mi"}}}
        classes = "/apis/node.k8s.io/v1/runtimeclasses"
        self._api.create(classes, _object("node.k8s.io/v1", "RuntimeClass", {"name": "heavy"}) | overhead)
        for kind in volumes.classes():
            self._api.create("/apis/storage.k8s.io/v1/storageclasses", kind)
        self._scheduler = self._plane.start_scheduler(_SETTINGS)

    def close(self) -> None:
        self._plane.close()

    def answer(self, world: JSON) -> JSON:
        """The world as stored, with the nodes that passed for each pod that asks."""
        stored = [self._create_volume(volume) for volume in world["volumes"]]
        claims = [self._create_claim(claim) for claim in world["claims"]]
        nodes = [self._api.create("/api/v1/nodes", node) for node in world["nodes"]]
        running = [self._create_running(pod) for pod in world["running"]]
        asked = [self._ask(pod, len(nodes)) for pod in world["asking"]]
        self._wipe()
        return {
            "seed": world["seed"],
            "namespaces": worlds.NAMESPACES,
            "classes": volumes.classes(),
            "claims": claims,
            "volumes": stored,
            "nodes": [_slim(node) for node in nodes],
            "running": running,
            "asked": asked,
        }

    def _create_volume(self, volume: JSON) -> JSON:
        self._api.create("/api/v1/persistentvolumes", volume)
        phase = "Bound" if "claimRef" in volume["spec"] else "Available"
        path = f"/api/v1/persistentvolumes/{volume['metadata']['name']}/status"
        return _slim(self._api.merge(path, {"status": {"phase": phase}}))

    def _create_claim(self, claim: JSON) -> JSON:
        path = f"/api/v1/namespaces/{claim['metadata']['namespace']}/persistentvolumeclaims"
        return _slim(self._api.create(path, claim))

    def _create_running(self, pod: JSON) -> JSON:
        state = pod["state"]
        made = self._api.create(_pods(pod), {key: value for key, value in pod.items() if key != "state"})
        path = f"{_pods(pod)}/{pod['metadata']['name']}"
        if state == "Terminating":
            self._api.delete(path)
            made = self._api.get(path)
        else:
            made = self._api.merge(f"{path}/status", {"status": {"phase": state}})
        return _slim(made)

    def _ask(self, pod: JSON, nodes: int) -> JSON:
        made, message = self._hear(pod, f"0/{nodes} nodes are available")
        return {"pod": _slim(made), "feasible": self._recorded(made["metadata"]["uid"]), "message": message}

    def _hear(self, pod: JSON, beginning: str) -> tuple[JSON, str]:
        """The pod as stored and what the scheduler says of it.

        It learns of nodes and pods on separate streams: an answer that begins otherwise came too early.
        """
        path = f"{_pods(pod)}/{pod['metadata']['name']}"
        for _ in range(200):
            made = self._api.create(_pods(pod), pod)
            message = until(lambda: self._verdict(path), f"a verdict about {path}", pause=0.005)
            self._api.delete(path, {"gracePeriodSeconds": 0})
            if message.startswith(beginning):
                return made, message
        raise AssertionError(f"{path}: expected {beginning!r}, the scheduler says {message!r}")

    def _verdict(self, path: str) -> str:
        self._scheduler.expect_alive()
        for condition in self._api.get(path)["status"].get("conditions", ()):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return str(condition["message"])
        return ""

    def _recorded(self, uid: str) -> list[str]:
        if not self._record.exists():
            return []
        entries = [json.loads(line) for line in self._record.read_text().splitlines()]
        found: list[list[str]] = [entry["nodes"] for entry in entries if entry["uid"] == uid]
        return found[-1] if found else []

    def _wipe(self) -> None:
        for namespace in worlds.NAMESPACES:
            self._api.delete(f"/api/v1/namespaces/{namespace}/pods", {"gracePeriodSeconds": 0})
            self._api.delete(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims")
        self._api.delete("/api/v1/persistentvolumes")
        self._api.delete("/api/v1/nodes")
        # Nodes of the next world have the same names: wait until the scheduler has forgotten these.
        self._hear(_PROBE, "no nodes available")
        self._record.unlink(missing_ok=True)


_SETTINGS: JSON = {
    "percentageOfNodesToScore": 100,
    "profiles": [
        {
            "schedulerName": worlds.SCHEDULER,
            # Preemption would nominate nodes and so change the world for the next pod.
            "plugins": {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}},
        }
    ],
    "extenders": [
        {"urlPrefix": f"http://127.0.0.1:{PORT}", "filterVerb": "filter", "nodeCacheCapable": True, "httpTimeout": "5s"}
    ],
}


_PROBE: JSON = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "probe", "namespace": next(iter(worlds.NAMESPACES))},
    "spec": {"schedulerName": worlds.SCHEDULER, "containers": [{"name": "c", "image": "workload:1"}]},
}


def _object(api_version: str, kind: str, metadata: JSON) -> JSON:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _pods(pod: JSON) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"


def _slim(stored: JSON) -> JSON:
    """Without what differs between two recordings and no filter reads."""
    unwanted = {"managedFields", "resourceVersion", "creationTimestamp", "uid", "generation"}
    metadata = {key: value for key, value in stored["metadata"].items() if key not in unwanted}
    if "deletionTimestamp" in metadata:
        metadata["deletionTimestamp"] = "2000-01-01T00:00:00Z"
    status = {key: stored["status"][key] for key in ("phase", "allocatable") if key in stored.get("status", {})}
    return {"metadata": metadata, "spec": stored["spec"], "status": status}
