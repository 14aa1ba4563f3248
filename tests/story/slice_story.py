"""Slices from request to release, with kubectl alone, on any cluster that has `kubectl(*args, input=...)`.

Each function is one part: it does something, waits with a limit, and asserts what a user would see. The parts do not
depend on the kind of cluster, so that they run on the embedded and on the real one.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any, Protocol

import yaml

from apportion.apis import names

Json = dict[str, Any]
PATIENCE = 60.0
DAS = "das-operator"
AGENTS = f"{names.APP_LABEL}={names.AGENT_APP}"


class Cluster(Protocol):
    """What a chapter needs of a cluster."""

    def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> str: ...  # noqa: A002


def until(holds: Callable[[], bool], what: Callable[[], str], *, within: float = PATIENCE) -> float:
    """Poll until a condition holds; the answer is how long it took."""
    start = time.monotonic()
    while not holds():
        assert time.monotonic() - start < within, f"after {within:g} s: {what()}"
        time.sleep(0.1)
    return time.monotonic() - start


class NamespacedKubectl:
    """kubectl in one namespace."""

    def __init__(self, cluster: Cluster, namespace: str, *, image: str = "busybox:1.36") -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.image = image

    def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002
        return self.cluster.kubectl("-n", self.namespace, *args, input=input, check=check)

    def apply(self, *manifests: Json) -> str:
        return self.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(manifests))

    def items(self, what: str, *args: str, namespace: str | None = None) -> list[Json]:
        out = self.cluster.kubectl("-n", namespace or self.namespace, "get", what, "-o", "json", *args)
        return list(json.loads(out)["items"])

    def pods(self, app: str) -> list[Json]:
        return self.items("pods", "-l", f"app={app}")

    def running(self, app: str) -> list[Json]:
        return [
            pod
            for pod in self.pods(app)
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def claims(self) -> list[Json]:
        """The claims of this namespace's pods."""
        return [
            claim
            for claim in self.items("allocationclaims", namespace=DAS)
            if claim["spec"]["podRef"]["namespace"] == self.namespace
        ]

    def claims_of(self, pod: Json) -> list[Json]:
        return [claim for claim in self.claims() if claim["spec"]["podRef"]["uid"] == pod["metadata"]["uid"]]

    def wait_running(self, app: str, count: int, *, within: float = PATIENCE) -> float:
        return until(
            lambda: len(self.running(app)) == count,
            lambda: f"{len(self.running(app))} of {count} pods of {app} run:\n" + self.kubectl("get", "pods"),
            within=within,
        )

    def deployment(self, name: str, *, replicas: int, **limits: str) -> Json:
        labels = {"app": name}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": self.pod_spec(limits)},
            },
        }

    def pod_spec(self, limits: dict[str, str]) -> Json:
        return {
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "busy",
                    "image": self.image,
                    "command": ["sh", "-c", "env | grep VISIBLE_DEVICES; sleep 100000"],
                    "resources": {"limits": limits},
                }
            ],
        }


def mig(profile: str) -> str:
    return f"nvidia.com/mig-{profile}"


def devices_in_log(tell: NamespacedKubectl, pod: Json) -> list[str]:
    name = pod["metadata"]["name"]
    until(lambda: "NVIDIA_VISIBLE_DEVICES=" in tell.kubectl("logs", name), lambda: f"{name} printed no devices")
    found = re.search(r"NVIDIA_VISIBLE_DEVICES=(\S+)", tell.kubectl("logs", name))
    assert found
    return found[1].split(",")


def fourteen_run_and_the_fifteenth_waits(tell: NamespacedKubectl) -> None:
    tell.apply(tell.deployment("team-a", replicas=14, **{mig("1g.5gb"): "1"}))
    tell.wait_running("team-a", 14)
    uuids = [claim["status"]["migUUID"] for claim in tell.claims()]
    assert len(set(uuids)) == 14
    assert {claim["status"]["state"] for claim in tell.claims()} == {"inUse"}
    for pod in tell.running("team-a")[:3]:
        assert devices_in_log(tell, pod) == [claim["status"]["migUUID"] for claim in tell.claims_of(pod)]
    tell.apply(tell.deployment("late", replicas=1, **{mig("1g.5gb"): "1"}))
    until(
        lambda: "FailedScheduling" in tell.kubectl("describe", "pods", "-l", "app=late"),
        lambda: "no FailedScheduling event:\n" + tell.kubectl("describe", "pods", "-l", "app=late"),
    )
    described = tell.kubectl("describe", "pods", "-l", "app=late")
    assert "1g.5gb" in described
    assert re.search(r"FailedScheduling.*\b14\b", described), described
    assert [pod["status"]["phase"] for pod in tell.pods("late")] == ["Pending"]


def a_freed_place_is_taken(tell: NamespacedKubectl) -> None:
    tell.kubectl("scale", "deployment/team-a", "--replicas=13")
    tell.wait_running("late", 1, within=20)


def one_container_with_two_profiles_gets_one_list(tell: NamespacedKubectl) -> None:
    tell.kubectl("scale", "deployment/team-a", "--replicas=3")
    tell.apply(tell.deployment("mixed", replicas=1, **{mig("1g.5gb"): "1", mig("2g.10gb"): "1"}))
    tell.wait_running("mixed", 1)
    (pod,) = tell.running("mixed")
    container = pod["spec"]["containers"][0]
    assert container["resources"]["limits"]["gpu.das.com/mem"] == "15"
    claims = tell.claims_of(pod)
    assert sorted(claim["spec"]["profile"] for claim in claims) == ["1g.5gb", "2g.10gb"]
    assert sorted(devices_in_log(tell, pod)) == sorted(claim["status"]["migUUID"] for claim in claims)
    assert "CUDA_VISIBLE_DEVICES=0,1" in tell.kubectl("logs", pod["metadata"]["name"])


def the_documents_commands_answer(tell: NamespacedKubectl) -> None:
    table = tell.cluster.kubectl("get", "allocationclaims", "-n", DAS).splitlines()
    assert table[0].split() == ["NAME", "AGE"]
    assert re.fullmatch(r"[0-9a-f-]{36}-busy-\d+\s+\S+", table[1].rstrip()), table[1]
    listed = yaml.safe_load(tell.cluster.kubectl("get", "allocationclaims", "-n", DAS, "-o", "yaml"))
    assert listed["kind"] == "List"
    claim = listed["items"][0]
    assert claim["apiVersion"] == "inference.redhat.com/v1alpha1"
    assert claim["kind"] == "AllocationClaim"
    assert set(claim["spec"]) >= {"gpuUUID", "migPlacement", "nodename", "podRef", "profile", "containers"}
    assert claim["spec"]["podRef"]["kind"] == "Pod"
    (condition,) = claim["status"]["conditions"]
    assert condition["message"] == f"Allocation is {claim['status']['state']}"
    assert (condition["reason"], condition["status"], condition["type"]) == (claim["status"]["state"], "True", "State")
    assert tell.cluster.kubectl("get", "alloc", "-n", DAS).splitlines()[0].split() == ["NAME", "AGE"]
    node = claim["spec"]["nodename"]
    assert "mig.das.com/1g.5gb" in tell.cluster.kubectl("describe", "node", node)
    assert "gpu.das.com/mem" in tell.cluster.kubectl("describe", "node", node)
    planes = tell.cluster.kubectl("get", "pods", "-n", DAS)
    for plane in ("das-operator-webhook-", "das-scheduler-", "das-daemonset-"):
        assert re.search(rf"^{plane}\S+\s+1/1\s+Running", planes, re.MULTILINE), planes
    for app in ("das-operator-daemonset", "das-operator-webhook"):
        assert tell.cluster.kubectl("logs", "-n", DAS, "-l", f"app.kubernetes.io/name={app}").strip()


def all_is_given_back(tell: NamespacedKubectl) -> None:
    tell.kubectl("delete", "deployments", "--all")
    until(lambda: not tell.items("pods"), lambda: "pods are left:\n" + tell.kubectl("get", "pods"))
    until(
        lambda: not tell.claims(),
        lambda: f"claims are left: {[c['metadata']['name'] for c in tell.claims()]}",
        within=20,
    )


def bad_input_is_refused(tell: NamespacedKubectl) -> None:
    for limits, said in (
        ({mig("9g.99gb"): "1"}, ("9g.99gb", "1g.5gb", "spec.containers[0].resources.limits")),
        ({mig("1g.5gb"): "-1"}, ("-1", "spec.containers[0].resources.limits")),
        ({mig("1g.5gb"): "1", "mig.das.com/1g.5gb": "1"}, ("mig.das.com/1g.5gb", mig("1g.5gb"))),
    ):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}, "spec": tell.pod_spec(limits)}
        answer = tell.kubectl("apply", "-f", "-", input=yaml.safe_dump(pod), check=False)
        for word in said:
            assert word in answer, answer
    assert not [pod for pod in tell.items("pods") if pod["metadata"]["name"] == "bad"]


def a_removed_claim_comes_back_as_it_was(tell: NamespacedKubectl) -> None:
    """Somebody deletes the claim of a running pod and its finalizer; the pod keeps its slice."""
    tell.apply(tell.deployment("keeps", replicas=1, **{mig("2g.10gb"): "1"}))
    tell.wait_running("keeps", 1)
    (pod,) = tell.running("keeps")
    until(lambda: _states(tell, pod) == ["inUse"], lambda: f"the claim is {_states(tell, pod)}")
    (before,) = tell.claims_of(pod)
    name = before["metadata"]["name"]
    tell.cluster.kubectl("-n", DAS, "delete", "alloc", name, "--wait=false")
    tell.cluster.kubectl("-n", DAS, "patch", "alloc", name, "--type=merge", "-p", '{"metadata": {"finalizers": null}}')

    def is_back() -> bool:
        found = tell.claims_of(pod)
        return [claim["metadata"]["uid"] for claim in found] != [before["metadata"]["uid"]] and _states(tell, pod) == [
            "inUse"
        ]

    until(is_back, lambda: f"the claim is {tell.claims_of(pod)}")
    (after,) = tell.claims_of(pod)
    assert (after["spec"], after["status"]["migUUID"]) == (before["spec"], before["status"]["migUUID"])
    assert devices_in_log(tell, pod) == [after["status"]["migUUID"]]
    tell.kubectl("delete", "deployment", "keeps")
    until(lambda: not tell.claims(), lambda: f"claims are left: {tell.claims()}")


def a_pod_without_a_place_on_its_node_is_evicted(tell: NamespacedKubectl) -> None:
    """The driver refuses every slice: the agent marks the claim, and the scheduler evicts the pod."""
    (node,) = (node["metadata"]["name"] for node in tell.items("nodes"))
    _inject_failures(tell, node, '[{"kind": "refuse"}]')
    try:
        lonely = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lonely"}}
        tell.apply(lonely | {"spec": tell.pod_spec({mig("1g.5gb"): "1"})})
        until(lambda: not tell.items("pods"), lambda: tell.kubectl("describe", "pods"))
    finally:
        _inject_failures(tell, node, "")
    (event,) = (event for event in tell.items("events") if event["reason"] == "SliceLost")
    assert event["source"]["component"] == "das-scheduler"
    assert "the driver refused to create the slice" in event["message"]
    assert event["message"].endswith("is free on this node: the pod is evicted")
    until(lambda: not tell.claims(), lambda: f"claims are left: {tell.claims()}")


def _inject_failures(tell: NamespacedKubectl, node: str, failures: str) -> None:
    """Returns when the agent says that they are in effect."""
    line = f"emulated failures: {failures or 'none'}"

    def said() -> int:
        return tell.cluster.kubectl("-n", DAS, "logs", "-l", AGENTS, "--tail=-1").count(line)

    before = said()
    name = names.EMULATED_FAILURES
    tell.kubectl("annotate", "node", node, f"{name}={failures}" if failures else f"{name}-")
    until(lambda: said() > before, lambda: f"the agent does not say: {line}")


def _states(tell: NamespacedKubectl, pod: Json) -> list[str]:
    return [claim["status"]["state"] for claim in tell.claims_of(pod)]
