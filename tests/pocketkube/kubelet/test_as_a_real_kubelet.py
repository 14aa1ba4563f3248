"""The same pods on a real kubelet and on an embedded one: what kubectl shows must be the same."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.environments.cluster import Cluster
from tests.environments.embedded import Embedded
from tests.environments.node import RealNode

Json = dict[str, Any]
IMAGE = "busybox:1.36"
NAMESPACE = "as-a-real-kubelet"
SETTLED_SECONDS = 60
UNTIL_TERM = "trap 'exit 0' TERM; sleep 1000 & wait"


def pod(name: str, command: str, *, container: Json | None = None, **spec: Any) -> Json:
    main = {"name": "c", "command": ["sh", "-c", command], **_image(), **(container or {})}
    body = {"terminationGracePeriodSeconds": 2, "containers": [main], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}


def init(name: str, command: str, **more: Any) -> Json:
    return {"name": name, "command": ["sh", "-c", command], **_image(), **more}


def _image() -> Json:
    return {"image": IMAGE, "imagePullPolicy": "IfNotPresent"}


def probe(command: str, **more: Any) -> Json:
    return {"exec": {"command": [command]}, "periodSeconds": 1, **more}


PODS: dict[str, Callable[[str], Json]] = {
    "succeeds": lambda _: pod("succeeds", "echo hi", restartPolicy="Never"),
    "fails": lambda _: pod("fails", "exit 3", restartPolicy="Never"),
    "runs": lambda _: pod("runs", UNTIL_TERM),
    "no-config": lambda _: pod("no-config", "true", container={"envFrom": [{"configMapRef": {"name": "none"}}]}),
    "no-volume": lambda _: pod(
        "no-volume",
        "true",
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        volumes=[{"name": "v", "configMap": {"name": "none"}}],
    ),
    "unused-volume": lambda _: pod("unused-volume", UNTIL_TERM, volumes=[{"name": "v", "configMap": {"name": "none"}}]),
    "too-big": lambda node: pod("too-big", "true", nodeName=node, container={"resources": {"requests": {"cpu": "9k"}}}),
    "elsewhere": lambda node: pod("elsewhere", "true", nodeName=node, nodeSelector={"a": "b"}),
    "init-fails": lambda _: pod("init-fails", "true", restartPolicy="Never", initContainers=[init("i", "exit 1")]),
    "init-runs": lambda _: pod("init-runs", "true", initContainers=[init("i", UNTIL_TERM)]),
    "sidecar": lambda _: pod(
        "sidecar", "sleep 1", restartPolicy="Never", initContainers=[init("s", UNTIL_TERM, restartPolicy="Always")]
    ),
    "too-long": lambda _: pod("too-long", UNTIL_TERM, activeDeadlineSeconds=2),
    "unready": lambda _: pod("unready", UNTIL_TERM, container={"readinessProbe": probe("false")}),
    "ready": lambda _: pod("ready", UNTIL_TERM, container={"readinessProbe": probe("true")}),
    "requests": lambda _: pod("requests", UNTIL_TERM, container={"resources": {"requests": {"cpu": "10m"}}}),
}


class Kubelet:
    """One of the two, with its pods."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self.cluster = cluster
        self.node = node
        cluster.kubectl("create", "namespace", NAMESPACE)
        # A real cluster makes the ServiceAccount of a namespace after it, and refuses pods until then.
        self._until(lambda: "default" in cluster.kubectl("-n", NAMESPACE, "get", "serviceaccounts", "-o", "name"))
        items = [make(node) for make in PODS.values()]
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        cluster.kubectl("-n", NAMESPACE, "apply", "-f", "-", input=body)

    def shown(self, name: str) -> Json:
        found = json.loads(self.cluster.kubectl("-n", NAMESPACE, "get", "pod", name, "-o", "json"))
        return {
            "row": self._row(name),
            "status": _signature(found["status"], self._plain),
            "events": self._events(name),
        }

    def _row(self, name: str) -> list[str]:
        line = self.cluster.kubectl("-n", NAMESPACE, "get", "pod", name, "--no-headers")
        return line.split()[:4]

    def _events(self, name: str) -> list[str]:
        selector = f"involvedObject.name={name}"
        found = self.cluster.kubectl("-n", NAMESPACE, "get", "events", "--field-selector", selector, "-o", "json")
        return sorted(
            {
                f"{e['type']} {e['reason']} {e['involvedObject'].get('fieldPath', '')} {self._plain(e['message'])}"
                for e in json.loads(found)["items"]
                if not _is_of_the_moment(e)
            }
        )

    def _plain(self, text: str) -> str:
        text = re.sub(r"used: \d+, capacity: \d+", "used: N, capacity: N", text)
        return re.sub(rf"\b{self.node}\b", "NODE", text)

    def _until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + SETTLED_SECONDS
        while not holds():
            assert time.monotonic() < end
            time.sleep(0.1)


def _is_of_the_moment(event: Json) -> bool:
    """Pods of other tests may still be ending on the real node, and on a busy machine its caches are late."""
    return event["reason"] == "FailedScheduling" or "cache: timed out waiting for the condition" in event["message"]


def _signature(status: Json, plain: Callable[[str], str]) -> Json:
    """What of a status does not depend on the moment, the machine or chance."""
    conditions = {
        each["type"]: (each["status"], each.get("reason"), each.get("message")) for each in status.get("conditions", [])
    }
    containers = {
        each["name"]: {
            "ready": each["ready"],
            "started": each.get("started"),
            "restarts": each["restartCount"],
            "state": _state(each["state"]),
            "resources": each.get("resources"),
        }
        for each in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", []))
    }
    fields = {name: status.get(name) for name in ("phase", "reason", "qosClass")}
    has_address = bool(status.get("podIP"))
    message = plain(status.get("message", ""))
    return {**fields, "message": message, "address": has_address, "conditions": conditions, "containers": containers}


def _state(state: Json) -> list[Any]:
    ((kind, facts),) = state.items()
    return [kind, facts.get("reason"), facts.get("message"), facts.get("exitCode")]


@pytest.fixture(scope="module")
def kubelets(real_node: RealNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kubelet, Kubelet]]:
    folder: Path = tmp_path_factory.mktemp("embedded") / "cluster"
    folder.mkdir()
    embedded = Embedded(folder, "--bare", "--nodes", "1")
    try:
        yield Kubelet(real_node.plane, "n1"), Kubelet(embedded, "node-1")
    finally:
        real_node.plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
        embedded.close()


@pytest.mark.real
@pytest.mark.parametrize("name", PODS)
def test_kubectl_shows_the_same(kubelets: tuple[Kubelet, Kubelet], name: str) -> None:
    real, embedded = kubelets
    end = time.monotonic() + SETTLED_SECONDS
    while (there := real.shown(name)) != (here := embedded.shown(name)) and time.monotonic() < end:
        time.sleep(0.5)
    assert here == there
