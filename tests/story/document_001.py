"""The walk through document 001: every command as printed, and what each of its sentences promises.

For any cluster with kubectl, GPU sharing, and a node with GPUs that are not in MIG mode and that nobody else uses. The
document's first two manifests name the same pod, so the walk deletes it in between.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from tests.environments import binaries
from tests.story.slice_story import NamespacedKubectl, until

Json = dict[str, Any]
EXAMPLES = binaries.ROOT / "examples" / "gpu-sharing"
SHARING, RESERVATIONS = "kai-scheduler", "kai-resource-reservation"
GROUP = "runai-gpu-group"
UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_QUEUE_AND_SHARE = (
    r"jsonpath=Queue: {.metadata.labels.kai\.scheduler/queue}, GPU Fraction: {.metadata.annotations.gpu-fraction},"
    ' GPU Memory: {.metadata.annotations.gpu-memory}{"\\n"}'
)
_FRACTION_AND_CONTAINER = (
    "jsonpath=GPU Fraction: {.metadata.annotations.gpu-fraction},"
    ' Container: {.metadata.annotations.gpu-fraction-container-name}{"\\n"}'
)


class Walk:
    """kubectl in one namespace. `script` replaces what the containers of the examples run, where their images and
    nvidia-smi are not to be had."""

    def __init__(self, tell: NamespacedKubectl, *, script: str = "") -> None:
        self.tell, self._script = tell, script

    def apply(self, example: str, *, check: bool = True) -> str:
        path = EXAMPLES / example
        if not self._script:
            return self.tell.kubectl("apply", "-f", str(path), check=check)
        pod = yaml.safe_load(path.read_text())
        for container in pod["spec"]["containers"]:
            container |= {"image": self.tell.image, "command": ["sh", "-c", self._script], "args": []}
        return self.tell.kubectl("apply", "-f", "-", input=yaml.safe_dump(pod), check=check)

    def get(self, pod: str, namespace: str = "") -> Json:
        return dict(
            json.loads(self.tell.cluster.kubectl("get", "pod", pod, "-n", namespace or self.namespace, "-o", "json"))
        )

    @property
    def namespace(self) -> str:
        return self.tell.namespace

    def runs(self, pod: str) -> Json:
        until(lambda: self._phase(pod) == "Running", lambda: self.tell.kubectl("describe", "pod", pod), within=90)
        return self.get(pod)

    def _phase(self, pod: str) -> str:
        found: str = self.get(pod)["status"].get("phase", "")
        return found

    def reservations(self) -> list[Json]:
        return self.tell.items("pods", namespace=RESERVATIONS)

    def log(self, pod: str, container: str, wanted: re.Pattern[str]) -> str:
        """`kubectl logs POD -c CONTAINER`, once the container has written it."""

        def said() -> str:
            return self.tell.kubectl("logs", pod, "-c", container, check=False)

        until(lambda: wanted.search(said()) is not None, lambda: f"the log of {pod}: {said()}")
        return said()

    def delete(self, *pods: str) -> None:
        self.tell.kubectl("delete", "pod", "--ignore-not-found", "--wait=true", "--grace-period=1", *pods)

    def gpu_is_free(self) -> None:
        until(lambda: not self.reservations(), lambda: self.tell.cluster.kubectl("get", "pods", "-n", RESERVATIONS))

    def nothing_left(self) -> None:
        self.gpu_is_free()
        for kind in ("configmaps", "bindrequests"):
            until(lambda kind=kind: not self._ours(kind), lambda kind=kind: f"{kind}: {self._ours(kind)}")  # type: ignore[misc]

    def _ours(self, kind: str) -> list[str]:
        found = [item["metadata"]["name"] for item in self.tell.items(kind)]
        return [name for name in found if kind == "bindrequests" or "-shared-gpu-" in name]


def walk(tell: NamespacedKubectl, *, script: str = "") -> None:
    steps = Walk(tell, script=script)
    try:
        for _ in range(2):  # then the whole again
            sharing_is_on(steps)
            a_fraction_of_a_gpu(steps)
            an_amount_of_memory(steps)
            another_container(steps)
            troubleshooting(steps)
            steps.delete("gpu-sharing", "gpu-sharing-non-default")
            steps.nothing_left()
    finally:
        steps.delete("gpu-sharing", "gpu-sharing-non-default")


def sharing_is_on(steps: Walk) -> None:
    kubectl = steps.tell.cluster.kubectl
    path = "jsonpath={.spec.admission.gpuSharing}"
    assert kubectl("get", "config", "-n", SHARING, "kai-config", "-o", path) == "true"
    shown = kubectl("get", "pods", "-n", SHARING, "-l", "app=binder")
    assert len(re.findall(r"^binder-\S+\s+1/1\s+Running", shown, re.MULTILINE)) == 2, shown


def a_fraction_of_a_gpu(steps: Walk) -> None:
    steps.apply("gpu-sharing.yaml")
    pod = steps.runs("gpu-sharing")
    described = steps.tell.kubectl("describe", "pod", "gpu-sharing")
    assert re.search(r"gpu-fraction: 0\.5", described), described
    assert f"Successfully assigned {steps.namespace}/gpu-sharing" in described, described
    path = "jsonpath={.metadata.annotations.gpu-fraction}"
    assert steps.tell.kubectl("get", "pod", "gpu-sharing", "-o", path) == "0.5"
    (reservation,) = steps.reservations()
    assert reservation["metadata"]["labels"][GROUP] == pod["metadata"]["labels"][GROUP]
    assert pod["metadata"]["annotations"]["received-resource-type"] == "Fraction"
    uuid = reservation["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"]
    assert UUID.fullmatch(uuid)
    assert uuid in steps.log("gpu-sharing", "gpu-workload", UUID)


def an_amount_of_memory(steps: Walk) -> None:
    refused = steps.apply("gpu-memory.yaml", check=False)
    assert steps.get("gpu-sharing")["metadata"]["annotations"].get("gpu-memory") is None, refused
    steps.delete("gpu-sharing")
    steps.apply("gpu-memory.yaml")
    steps.runs("gpu-sharing")
    path = "jsonpath={.metadata.annotations.gpu-memory}"
    assert steps.tell.kubectl("get", "pod", "gpu-sharing", "-o", path) == "2000"
    assert len(steps.reservations()) == 1
    steps.log("gpu-sharing", "gpu-workload", UUID)


def another_container(steps: Walk) -> None:
    """It joins the GPU of the other pod, which has room."""
    steps.apply("gpu-sharing-non-default-container.yaml")
    pod = steps.runs("gpu-sharing-non-default")
    said = steps.tell.kubectl("get", "pod", "gpu-sharing-non-default", "-o", _FRACTION_AND_CONTAINER)
    assert said == "GPU Fraction: 0.5, Container: gpu-workload\n"
    assert len(steps.reservations()) == 1
    steps.log("gpu-sharing-non-default", "gpu-workload", UUID)
    variables = {
        container["name"]: next(each for each in container["env"] if each["name"] == "NVIDIA_VISIBLE_DEVICES")
        for container in pod["spec"]["containers"]
    }
    assert "valueFrom" in variables.pop("gpu-workload")
    assert {each["value"] for each in variables.values()} == {"void"}


def troubleshooting(steps: Walk) -> None:
    kubectl = steps.tell.cluster.kubectl
    (reservation,) = steps.reservations()
    name = reservation["metadata"]["name"]
    assert name in kubectl("get", "pods", "-n", RESERVATIONS)
    assert UUID.search(kubectl("logs", "-n", RESERVATIONS, name))
    for app, words in (("kai-scheduler", "gpu"), ("binder", "gpu\\|reservation")):
        log = kubectl("logs", "-n", SHARING, "-l", f"app={app}", "--tail=100")
        assert re.search(words.replace("\\|", "|"), log, re.IGNORECASE), f"{app}: {log}"
    said = steps.tell.kubectl("get", "pod", "gpu-sharing", "-o", _QUEUE_AND_SHARE)
    assert said == "Queue: default-queue, GPU Fraction: , GPU Memory: 2000\n"


def pod_of_document_004(tell: NamespacedKubectl, *, script: str = "") -> None:
    """As printed there, in the queue `test` of that document."""
    kubectl = tell.cluster.kubectl
    queues = str(binaries.ROOT / "examples" / "queues" / "queues.yaml")
    steps = Walk(tell, script=script)
    kubectl("apply", "-f", queues)
    kubectl("create", "namespace", tell.namespace)
    try:
        steps.apply("gpu-pod.yaml")
        until(
            lambda: steps.get("gpu-pod")["status"].get("phase") == "Succeeded", lambda: tell.kubectl("describe", "pod")
        )
        pod = steps.get("gpu-pod")
        assert pod["metadata"]["annotations"]["received-resource-type"] == "Fraction"
        assert pod["metadata"]["labels"]["kai.scheduler/queue"] == "test"
        steps.gpu_is_free()
    finally:
        kubectl("delete", "namespace", tell.namespace, "--wait=true")
        kubectl("delete", "-f", queues)
