"""The walk through document 001: every command as printed, and what each of its sentences promises.

For any cluster with kubectl, GPU sharing, and a node with GPUs that are not in MIG mode and that nobody else uses. The
document's first two manifests name the same pod, so the walk deletes it in between.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import yaml

from tests.environments import binaries, waiting
from tests.story import document_001_snippets as snippets
from tests.story.slice_story import NamespacedKubectl, until
from tests.story.terminal import Terminal

Json = dict[str, Any]
EXAMPLES = binaries.ROOT / "examples" / "gpu-sharing"
RESERVATIONS = "kai-resource-reservation"
GROUP, HELD_GPU, PLANNED_GPU = "runai-gpu-group", "run.ai/reserve_for_gpu_index", "apportion.io/planned-gpu"
UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TOO_LARGE = "gpu-sharing-too-large"
PODS = ("gpu-sharing", "gpu-sharing-non-default", TOO_LARGE)
REFUSED = (
    "metadata.annotations[gpu-fraction]: '': the share of a pod cannot be changed; "
    "delete the pod first, and create it again"
)


@dataclass(frozen=True)
class Reservation:
    """The pod that holds a GPU, and the GPU's UUID. The kubelet may have assigned another one than was planned."""

    name: str
    gpu: str
    planned: str

    @property
    def row(self) -> str:
        """What `kubectl get pods` prints of it, and of no other."""
        return rf"\ANAME .*\n{self.name}\s+1/1\s+Running\s.*\n\Z"


class Walk:
    """The commands of the document in a terminal, and kubectl in the namespace of that terminal for what the document
    leaves to its reader: waiting, deleting, finding names."""

    def __init__(self, tell: NamespacedKubectl, terminal: Terminal) -> None:
        self.tell, self.terminal = tell, terminal
        self.typed: list[str] = []

    @property
    def namespace(self) -> str:
        return self.tell.namespace

    def prints(self, command: str, **names: str) -> str:
        """What a command of the document prints; `pod_name` fills in `<pod-name>`."""
        self.typed.append(command)
        return self.terminal.run(_filled(command, names))

    def shows(self, command: str, *patterns: str, earlier: Collection[str] = (), **names: str) -> str:
        """The same, as soon as it has all that it shall show; lines that it had `earlier` do not count."""
        self.typed.append(command)
        seen = ""

        def complete() -> bool:
            nonlocal seen
            lines = self.terminal.run(_filled(command, names)).splitlines(keepends=True)
            seen = "".join(line for line in lines if line.rstrip("\n") not in earlier)
            return all(re.search(pattern, seen, re.MULTILINE) for pattern in patterns)

        try:
            waiting.until(complete, f"`{command}` shows {patterns}", within=60, pause=0.3)
        except waiting.NeverHappenedError as error:
            error.add_note(seen)
            raise
        return seen

    def reservation(self) -> Reservation:
        """The one there is; the walk uses one GPU at a time."""
        until(lambda: len(self.reservations()) == 1, lambda: str(self.reservations()))
        (pod,) = self.reservations()
        noted = pod["metadata"]["annotations"]
        found = Reservation(pod["metadata"]["name"], noted[HELD_GPU], noted[PLANNED_GPU])
        assert UUID.fullmatch(found.gpu), found
        return found

    def get(self, pod: str) -> Json:
        return dict(json.loads(self.tell.kubectl("get", "pod", pod, "-o", "json")))

    def runs(self, pod: str) -> Json:
        until(lambda: self.phase(pod) == "Running", lambda: self.tell.kubectl("describe", "pod", pod), within=90)
        return self.get(pod)

    def phase(self, pod: str) -> str:
        return self.tell.kubectl("get", "pod", pod, "-o", "jsonpath={.status.phase}")

    def reservations(self) -> list[Json]:
        return self.tell.items("pods", namespace=RESERVATIONS)

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


def walk(tell: NamespacedKubectl, terminal: Terminal, *, memory_portion: str) -> None:
    """`memory_portion`: what 2000 MiB are of a GPU of this cluster."""
    printed = [command for section in snippets.SECTIONS for command in snippets.commands(section)]
    try:
        for _ in range(2):  # then the whole again
            steps = Walk(tell, terminal)
            earlier = log_lines(tell)
            sharing_is_on(steps)
            a_fraction_of_a_gpu(steps)
            an_amount_of_memory(steps, memory_portion)
            another_container(steps)
            troubleshooting(steps, earlier)
            assert steps.typed == printed
            steps.delete(*PODS)
            steps.nothing_left()
    finally:
        Walk(tell, terminal).delete(*PODS)


def sharing_is_on(steps: Walk) -> None:
    switch, binders = snippets.commands(snippets.ENABLED)
    assert steps.prints(switch) == "true"
    shown = steps.prints(binders)
    assert len(re.findall(r"^binder-\S+\s+1/1\s+Running", shown, re.MULTILINE)) == 2, shown


def a_fraction_of_a_gpu(steps: Walk) -> None:
    apply, describe, annotation, reservations, log = snippets.commands(snippets.FRACTION)
    assert steps.prints(apply) == "pod/gpu-sharing created\n"
    pod = steps.runs("gpu-sharing")
    held = steps.reservation()
    steps.shows(describe, r"gpu-fraction: 0\.5$", assigned(steps, "gpu-sharing", r"\d+", held.gpu))
    assert steps.prints(annotation) == "0.5"
    steps.shows(reservations, held.row)
    steps.shows(log, rf"^{held.gpu}\n0\.5$")
    assert pod["metadata"]["annotations"]["received-resource-type"] == "Fraction"
    (reserving,) = steps.reservations()
    assert reserving["metadata"]["labels"][GROUP] == pod["metadata"]["labels"][GROUP]


def an_amount_of_memory(steps: Walk, portion: str) -> None:
    apply, describe, annotation, reservations, log = snippets.commands(snippets.MEMORY)
    refused = steps.terminal.run(apply, code=1)
    assert REFUSED in refused, refused
    kept = steps.get("gpu-sharing")["metadata"]["annotations"]
    assert (kept["gpu-fraction"], kept.get("gpu-memory")) == ("0.5", None)
    steps.delete("gpu-sharing")
    assert steps.prints(apply) == "pod/gpu-sharing created\n"
    steps.runs("gpu-sharing")
    held = steps.reservation()
    steps.shows(describe, r"gpu-memory: 2000$", assigned(steps, "gpu-sharing", "2000", held.gpu))
    assert steps.prints(annotation) == "2000"
    steps.shows(reservations, held.row)
    steps.shows(log, rf"^{held.gpu}\n{re.escape(portion)}$")


def another_container(steps: Walk) -> None:
    """It joins the GPU of the other pod, which has room."""
    apply, describe, annotations, reservations, log = snippets.commands(snippets.NON_DEFAULT_CONTAINER)
    held, name = steps.reservation(), "gpu-sharing-non-default"
    assert steps.prints(apply) == f"pod/{name} created\n"
    steps.runs(name)
    wanted = (r"gpu-fraction: 0\.5$", r"gpu-fraction-container-name: gpu-workload$")
    described = steps.shows(describe, *wanted, assigned(steps, name, r"\d+", held.gpu))
    visible = r"(    .*\n)*?\s+NVIDIA_VISIBLE_DEVICES:\s+"
    assert re.search(rf"^  sidecar:\n{visible}void\n", described, re.MULTILINE), described
    assert re.search(rf"^  gpu-workload:\n{visible}<set to the key", described, re.MULTILINE), described
    assert steps.prints(annotations) == "GPU Fraction: 0.5, Container: gpu-workload\n"
    steps.shows(reservations, held.row)
    steps.shows(log, rf"^{held.gpu}\n0\.5$")


def troubleshooting(steps: Walk, earlier: set[str]) -> None:
    """For a pod that no GPU has room for, beside those that run."""
    switch, reservations, log, scheduler_log, binder_log, describe, share = snippets.commands(snippets.TROUBLESHOOTING)
    held, pod = steps.reservation(), f"pod {steps.namespace}/"
    steps.tell.apply(too_large())
    assert steps.prints(switch) == "true"
    steps.shows(reservations, held.row)
    steps.shows(log, rf"reserved GPU {held.gpu} for pods that share it$", reservation_pod_name=held.name)
    first, second = rf"{pod}gpu-sharing\b(?!-).*\b2000 MiB of", rf"{pod}gpu-sharing-non-default\b.* MiB of"
    waits = rf"{pod}{TOO_LARGE}\b.*\b90000 MiB of a GPU"
    decided = (rf"{first} (GPU {held.gpu}|{held.planned})\b", rf"{second} (GPU )?{held.gpu}\b", waits)
    steps.shows(scheduler_log, *decided, earlier=earlier)
    bound = (rf"created GPU reservation {held.name}\b", rf"{first} GPU {held.gpu}\b", rf"{second} GPU {held.gpu}\b")
    steps.shows(binder_log, *bound, earlier=earlier)
    free = r"needs 90000 MiB; the most free on one GPU is (\d+) of \1 MiB"
    change = r"Cheapest change: request gpu-memory \1 instead of 90000\."
    steps.shows(describe, rf"^  Warning\s+FailedScheduling\s.*{free}.*{change}$", pod_name=TOO_LARGE)
    said = steps.prints(share, pod_name=TOO_LARGE)
    assert said == "Queue: default-queue, GPU Fraction: , GPU Memory: 90000\n"


def pod_of_document_004(tell: NamespacedKubectl, terminal: Terminal, runs_and_ends: Callable[[Walk], None]) -> None:
    """As printed there, in the queue `test` of that document. Its end frees the GPU."""
    kubectl = tell.cluster.kubectl
    steps = Walk(tell, terminal)
    terminal.run("kubectl apply -f ../queues/queues.yaml")
    kubectl("create", "namespace", tell.namespace)
    try:
        assert terminal.run("kubectl apply -f gpu-pod.yaml") == "pod/gpu-pod created\n"
        runs_and_ends(steps)
        pod = steps.get("gpu-pod")
        assert pod["metadata"]["annotations"]["received-resource-type"] == "Fraction"
        assert pod["metadata"]["labels"]["kai.scheduler/queue"] == "test"
        steps.gpu_is_free()
    finally:
        kubectl("delete", "namespace", tell.namespace, "--wait=true")
        terminal.run("kubectl delete -f ../queues/queues.yaml")


def sample_completes(steps: Walk) -> None:
    until(lambda: steps.phase("gpu-pod") == "Succeeded", lambda: steps.tell.kubectl("describe", "pod"))
    assert "Test PASSED" in steps.tell.kubectl("logs", "gpu-pod")


def sample_runs_until_its_deadline(steps: Walk, *, portion: str, charge: str) -> None:
    """Where the image has another program. The queue counts the pod as long as it runs."""
    steps.runs("gpu-pod")
    seen = steps.tell.kubectl("exec", "gpu-pod", "--", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES $GPU_PORTION")
    assert seen == f"{steps.reservation().gpu} {portion}\n"

    def counted() -> str:
        path = r"jsonpath={.status.allocated.nvidia\.com/gpu}"
        return steps.tell.cluster.kubectl("get", "queue", "test", "-o", path)

    until(lambda: counted() == charge, lambda: f"queue test counts {counted()!r}")
    steps.tell.kubectl("patch", "pod", "gpu-pod", "-p", '{"spec": {"activeDeadlineSeconds": 1}}')
    until(lambda: steps.phase("gpu-pod") == "Failed", lambda: steps.tell.kubectl("describe", "pod"))


def assigned(steps: Walk, pod: str, mib: str, gpu: str) -> str:
    return rf"^  Normal\s+Scheduled\s.*Successfully assigned {steps.namespace}/{pod} to \S+: {mib} MiB of GPU {gpu}$"


def too_large() -> Json:
    """The pod of gpu-memory.yaml with more memory than any of the GPUs has."""
    pod: Json = yaml.safe_load((EXAMPLES / "gpu-memory.yaml").read_text())
    pod["metadata"] |= {"name": TOO_LARGE, "annotations": {"gpu-memory": "90000"}}
    return pod


def log_lines(tell: NamespacedKubectl) -> set[str]:
    """What scheduler and binder have logged so far."""
    read = ("logs", "-n", "kai-scheduler", "--tail=-1", "-l")
    return {
        line for app in ("kai-scheduler", "binder") for line in tell.cluster.kubectl(*read, f"app={app}").splitlines()
    }


def _filled(command: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        command = command.replace(f"<{name.replace('_', '-')}>", value)
    return command
