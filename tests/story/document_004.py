"""The walk through document 004: its queues as printed, and each of its statements about queues shown by pods.

For any cluster with kubectl and a node of four whole GPUs that nobody else uses. The document's pod with `gpu-memory`
is not part of it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.environments import binaries
from tests.story.slice_story import NamespacedKubectl, until

Json = dict[str, Any]
EXAMPLES = binaries.ROOT / "examples" / "queues"
GPU = "nvidia.com/gpu"
GPUS = 4
SHOWN_QUEUES = ("default", "test", "research", "product", "shared", "light", "heavy", "first", "second")


class Walk:
    """kubectl in one namespace, and what people look at."""

    def __init__(self, tell: NamespacedKubectl, kubeconfig: Path) -> None:
        self.tell, self._kubeconfig = tell, kubeconfig

    def apply(self, example: str) -> str:
        return self.tell.kubectl("apply", "-f", str(EXAMPLES / example))

    def queue(self, name: str, *, parent: str = "", priority: int = 100, weight: float = 1) -> None:
        """Without a quota of GPUs."""
        spec: Json = {"priority": priority, "resources": {"gpu": {"quota": 0, "limit": -1, "overQuotaWeight": weight}}}
        if parent:
            spec["parentQueue"] = parent
        self.tell.apply(
            {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        )

    def deployment(self, name: str, queue: str, replicas: int = GPUS) -> None:
        made = self.tell.deployment(name, replicas=replicas, **{GPU: "1"})
        made["metadata"]["labels"] = {"kai.scheduler/queue": queue}
        made["spec"]["template"]["spec"] |= {"schedulerName": "kai-scheduler", "priorityClassName": "train"}
        self.tell.apply(made)

    def status(self, queue: str) -> Json:
        found: Json = json.loads(self.tell.cluster.kubectl("get", "queue", queue, "-o", "json"))
        return dict(found.get("status", {}))

    def expect_status(self, queue: str, **wanted: str) -> None:
        """Amounts of GPUs: allocated, requested, fairShare, allocatedNonPreemptible."""

        def found() -> dict[str, str]:
            status = self.status(queue)
            return {field: status.get(field, {}).get(GPU, "") for field in wanted}

        until(lambda: found() == wanted, lambda: f"queue {queue} has {found()}, not {wanted}")

    def condition(self, queue: str, kind: str) -> str:
        return next((each["status"] for each in self.status(queue).get("conditions", ()) if each["type"] == kind), "")

    def expect_condition(self, queue: str, kind: str, wanted: str) -> None:
        until(lambda: self.condition(queue, kind) == wanted, lambda: f"queue {queue}: {self.status(queue)}")

    def expect_running(self, app: str, count: int) -> None:
        self.tell.wait_running(app, count, within=120)

    def pending(self, app: str) -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in self.tell.pods(app)
            if not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        ]

    def expect_pending(self, app: str, count: int) -> str:
        """One of them."""
        until(lambda: len(self.pending(app)) == count, lambda: f"{self.pending(app)} of {app} are pending, not {count}")
        return self.pending(app)[0]

    def events(self, reason: str) -> list[tuple[str, str]]:
        """Pod and message of each."""
        listed = self.tell.items("events", "--field-selector", f"reason={reason}")
        return [(event["involvedObject"]["name"], event["message"]) for event in listed]

    def expect_told(self, pod: str, wanted: str, *, layer: str) -> None:
        """The event of the pod, its condition and `apportion why` say it, each with the same words."""

        def told() -> list[str]:
            return [text for name, text in self.events("FailedScheduling") if name == pod]

        until(lambda: any(re.search(wanted, text) for text in told()), lambda: f"{pod} was told: {told()}")
        self.expect_explained(pod, wanted, layer=layer)

    def expect_explained(self, pod: str, wanted: str, *, layer: str) -> None:
        """`apportion why` says it."""
        until(lambda: re.search(wanted, self.why(pod)["sentence"]) is not None, lambda: f"why {pod}: {self.why(pod)}")
        assert self.why(pod).get("layer") == layer, self.why(pod)

    def why(self, pod: str) -> Json:
        found: Json = json.loads(self._apportion("why", pod, "-n", self.tell.namespace, "-o", "json"))
        return found

    def _apportion(self, *args: str) -> str:
        command = [sys.executable, "-m", "apportion", *args, "--kubeconfig", str(self._kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def clear(self) -> None:
        """No workload is left."""
        self.tell.kubectl("delete", "deployments,jobs,podgroups", "--all", "--wait=true")
        self.tell.kubectl("delete", "pods", "--all", "--grace-period=1")
        until(lambda: not self.tell.items("pods"), lambda: self.tell.kubectl("get", "pods"))


def walk(tell: NamespacedKubectl, kubeconfig: Path) -> None:
    steps = Walk(tell, kubeconfig)
    try:
        both_queues_apply_as_printed(steps)
        unlimited_queues_use_everything(steps)
        a_quota_is_guaranteed(steps)
        a_limit_is_not_exceeded(steps)
        weights_share_out_what_quotas_leave(steps)
        the_higher_priority_is_first(steps)
    finally:
        steps.clear()
        tell.cluster.kubectl("delete", "queue", "--ignore-not-found", *SHOWN_QUEUES)


def both_queues_apply_as_printed(steps: Walk) -> None:
    said = steps.apply("queues.yaml")
    assert [line.split()[1] for line in said.splitlines()] == ["created", "created"], said
    until(lambda: steps.status("default").get("childQueues") == ["test"], lambda: str(steps.status("default")))
    for name in ("default", "test"):
        spec = json.loads(steps.tell.cluster.kubectl("get", "queue", name, "-o", "json"))["spec"]
        unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        assert spec["resources"] == {"cpu": unlimited, "gpu": unlimited, "memory": unlimited}
        steps.expect_condition(name, "Orphan", "False")
        steps.expect_condition(name, "Invalid", "False")
    said = steps.apply("queues.yaml")
    assert [line.split()[1] for line in said.splitlines()] == ["unchanged", "unchanged"], said


def unlimited_queues_use_everything(steps: Walk) -> None:
    """`test` may consume as many resources as there are; a pod more has no place. `default` runs no pods itself."""
    steps.deployment("unlimited", "test", GPUS + 1)
    steps.expect_running("unlimited", GPUS)
    waiting = steps.expect_pending("unlimited", 1)
    for name in ("test", "default"):
        steps.expect_status(name, allocated=str(GPUS), requested=str(GPUS + 1))
        steps.expect_condition(name, "OverQuota", "False")
    steps.expect_explained(waiting, r"nvidia\.com/gpu", layer="placement")
    steps.deployment("inner", "default", 1)
    steps.expect_told(steps.expect_pending("inner", 1), r"queue default has child queues", layer="queue")
    assert steps.events("Evicted") == []
    steps.clear()
    steps.expect_status("test", allocated="0", requested="0", fairShare="0")


def a_quota_is_guaranteed(steps: Walk) -> None:
    """Whoever borrowed gives back; who cannot be preempted stays within the quota."""
    steps.apply("teams.yaml")
    steps.apply("training.yaml")
    until(lambda: len(running(steps, "training")) == GPUS, lambda: steps.tell.kubectl("get", "pods"))
    steps.expect_status("research", allocated="4", allocatedNonPreemptible="0", fairShare="4")
    steps.expect_condition("research", "OverQuota", "True")
    steps.apply("serving.yaml")
    steps.expect_running("serving", 2)
    evicted = steps.events("Evicted")
    assert len({name for name, _ in evicted}) == 2, evicted
    for name, text in evicted:
        assert name.startswith("training-"), name
        assert re.search(r"reclaimed for \S*serving\S*.* of queue product: .*queue research.*\b[34]\b", text), text
    steps.expect_status("product", allocated="2", allocatedNonPreemptible="2", fairShare="2")
    steps.expect_status("research", allocated="2", fairShare="2")
    steps.expect_condition("research", "OverQuota", "False")
    until(lambda: len(running(steps, "training")) == 2, lambda: steps.tell.kubectl("get", "pods"))
    steps.tell.kubectl("scale", "deployment/serving", "--replicas=3")
    waiting = steps.expect_pending("serving", 1)
    steps.expect_told(waiting, r"queue product\b.*quota.*\b2\b.*\b2\b.*\b1\b", layer="queue")
    steps.tell.kubectl("scale", "deployment/serving", "--replicas=2")
    assert len({name for name, _ in steps.events("Evicted")}) == 2


def a_limit_is_not_exceeded(steps: Walk) -> None:
    """Not even where GPUs are free, and not by a part of a gang."""
    steps.tell.kubectl("delete", "job", "training", "--wait=true")
    steps.expect_status("research", allocated="0")
    steps.apply("gang.yaml")
    for name in ("pair-0", "pair-1"):
        steps.expect_told(name, r"queue product\b.*limit.*\b2\b.*\b3\b.*\b2\b", layer="queue")
    steps.expect_status("product", allocated="2", requested="4", fairShare="3")
    steps.tell.kubectl("scale", "deployment/serving", "--replicas=1")
    until(
        lambda: all(phase(steps, name) == "Running" for name in ("pair-0", "pair-1")),
        lambda: steps.tell.kubectl("get", "pods"),
    )
    steps.expect_status("product", allocated="3", allocatedNonPreemptible="1")
    steps.clear()


def weights_share_out_what_quotas_leave(steps: Walk) -> None:
    """Three to one, whoever came first."""
    steps.queue("shared")
    steps.queue("light", parent="shared", weight=1)
    steps.queue("heavy", parent="shared", weight=3)
    steps.deployment("light", "light")
    steps.expect_running("light", GPUS)
    steps.expect_status("light", allocated="4", fairShare="4")
    steps.deployment("heavy", "heavy")
    steps.expect_running("heavy", 3)
    steps.expect_running("light", 1)
    steps.expect_status("heavy", allocated="3", requested="4", fairShare="3")
    steps.expect_status("light", allocated="1", requested="4", fairShare="1")
    gone = {name: text for name, text in steps.events("Evicted") if name.startswith("light-")}
    assert len(gone) == 3, gone
    assert all("queue heavy" in text and "queue light" in text for text in gone.values()), gone
    steps.expect_explained(steps.expect_pending("heavy", 1), r"GPU|nvidia\.com/gpu", layer="placement")
    steps.expect_pending("light", 3)
    steps.tell.kubectl("scale", "deployment/heavy", "--replicas=2")
    steps.expect_running("light", 2)
    steps.clear()


def the_higher_priority_is_first(steps: Walk) -> None:
    """What quotas leave goes to the queue with the higher priority, and the rest to the next one."""
    steps.queue("first", parent="shared", priority=200)
    steps.queue("second", parent="shared", priority=100)
    steps.deployment("second", "second")
    steps.expect_running("second", GPUS)
    steps.deployment("first", "first", 3)
    steps.expect_running("first", 3)
    steps.expect_running("second", 1)
    steps.expect_status("first", allocated="3", fairShare="3")
    steps.expect_status("second", allocated="1", fairShare="1")
    steps.expect_pending("second", 3)
    steps.tell.kubectl("scale", "deployment/first", "--replicas=4")
    steps.expect_running("first", GPUS)
    steps.expect_pending("second", GPUS)
    steps.expect_status("second", allocated="0", requested="4", fairShare="0")
    steps.tell.kubectl("scale", "deployment/first", "--replicas=2")
    steps.expect_running("second", 2)
    assert not [name for name, _ in steps.events("Evicted") if name.startswith("first-")]


def running(steps: Walk, job: str) -> list[Json]:
    return [
        pod
        for pod in steps.tell.items("pods", "-l", f"job-name={job}")
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


def phase(steps: Walk, name: str) -> str:
    return steps.tell.kubectl("get", "pod", name, "-o", "jsonpath={.status.phase}")
