"""The walk through document 003: its commands in its order, and what each must print. For any cluster with kubectl."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.environments import binaries
from tests.story.slice_story import DAS, NamespacedKubectl, devices_in_log, mig, until

Json = dict[str, Any]

# The example of the document: what a user may rely on to find in a claim.
CLAIM = """
apiVersion: inference.redhat.com/v1alpha1
kind: AllocationClaim
metadata: {creationTimestamp: any, generation: any, name: any, namespace: das-operator}
spec:
  gpuUUID: any
  migPlacement: {size: 1, start: any}
  nodename: any
  podRef: {kind: Pod, name: test-das, namespace: any}
status:
  conditions:
  - {message: Allocation is inUse, reason: inUse, status: "True", type: State}
  state: inUse
"""
PLANES = ("das-daemonset", "das-operator", "das-operator-webhook", "das-scheduler")


def walk(tell: NamespacedKubectl, kubeconfig: Path) -> None:
    pod = a_pod_gets_its_slice(tell)
    claims_print_as_shown(tell, pod)
    every_plane_is_listed_as_running(tell)
    emulated_mode_goes_off_and_on(tell, pod)
    tell.kubectl("delete", "pods", "--all", "--grace-period=1")
    until(lambda: not tell.claims(), lambda: "claims are left")
    the_end_to_end_tests_run(kubeconfig)


def a_pod_gets_its_slice(tell: NamespacedKubectl) -> Json:
    tell.apply(pod_called(tell, "test-das"))
    until(lambda: phase(tell, "test-das") == "Running", lambda: tell.kubectl("describe", "pod", "test-das"))
    pod: Json = json.loads(tell.kubectl("get", "pod", "test-das", "-o", "json"))
    assert pod["spec"]["schedulerName"] == "das-scheduler"
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert limits["mig.das.com/1g.5gb"] == "1"
    assert mig("1g.5gb") not in limits
    (claim,) = tell.claims_of(pod)
    assert devices_in_log(tell, pod) == [claim["status"]["migUUID"]]
    return pod


def claims_print_as_shown(tell: NamespacedKubectl, pod: Json) -> None:
    name = f"{pod['metadata']['uid']}-busy-0"
    table = tell.cluster.kubectl("get", "allocationclaims", "-n", DAS).splitlines()
    assert table[0].split() == ["NAME", "AGE"]
    assert any(re.fullmatch(rf"{name}\s+\S+", line.rstrip()) for line in table[1:]), table
    listed = yaml.safe_load(tell.cluster.kubectl("get", "allocationclaims", "-n", DAS, "-o", "yaml"))
    assert (listed["apiVersion"], listed["kind"], listed["metadata"]) == ("v1", "List", {"resourceVersion": ""})
    (claim,) = (item for item in listed["items"] if item["metadata"]["name"] == name)
    assert_contains(claim, yaml.safe_load(CLAIM))
    assert claim["spec"]["podRef"]["namespace"] == tell.namespace


def every_plane_is_listed_as_running(tell: NamespacedKubectl) -> None:
    listed = tell.cluster.kubectl("get", "pods", "-n", DAS).splitlines()
    assert listed[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    for plane in PLANES:
        row = re.compile(rf"{plane}-[a-z0-9]+(-[a-z0-9]+)?\s+1/1\s+Running\s")
        assert any(row.match(line) for line in listed), listed


def emulated_mode_goes_off_and_on(tell: NamespacedKubectl, running: Json) -> None:
    """Off on a machine without GPUs: told clearly, nothing new starts, what runs is kept; on: all is well again."""
    (before,) = tell.claims_of(running)
    switch(tell, "disabled")
    until(
        lambda: "libnvidia-ml.so.1 is missing" in condition(tell, "Degraded").get("message", ""),
        lambda: f"Degraded says {condition(tell, 'Degraded')}",
        within=120,
    )
    tell.apply(pod_called(tell, "waits"))
    until(
        lambda: "FailedScheduling" in tell.kubectl("describe", "pod", "waits"),
        lambda: tell.kubectl("describe", "pod", "waits"),
    )
    assert phase(tell, "waits") == "Pending"
    assert phase(tell, "test-das") == "Running"
    switch(tell, "enabled")
    until(lambda: phase(tell, "waits") == "Running", lambda: tell.kubectl("describe", "pod", "waits"), within=120)
    for kind, wanted in (("Available", "True"), ("Progressing", "False"), ("Degraded", "False")):
        until(
            lambda kind=kind, wanted=wanted: condition(tell, kind)["status"] == wanted,
            lambda kind=kind: f"{kind} is {condition(tell, kind)}",
            within=120,
        )
    (after,) = tell.claims_of(running)
    assert (after["spec"], after["status"]) == (before["spec"], before["status"])


def the_end_to_end_tests_run(kubeconfig: Path) -> None:
    code, text = make(kubeconfig, 'FOCUS="GPU slices"')
    assert code == 0, text
    assert re.search(r"\b5 passed", text), text
    code, text = make(kubeconfig, 'FOCUS="GPU slizes"')
    assert code != 0, text
    assert "matches none" in text, text


def make(kubeconfig: Path, focus: str) -> tuple[int, str]:
    """`make test-e2e FOCUS="..."` as a user types it."""
    path = f"{binaries.path('kubectl').parent}:{os.environ['PATH']}"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "MAKE"))}
    done = subprocess.run(
        ["sh", "-c", f"make test-e2e {focus}"],
        cwd=binaries.ROOT,
        env=environment | {"KUBECONFIG": str(kubeconfig), "PATH": path},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def pod_called(tell: NamespacedKubectl, name: str) -> Json:
    spec = tell.pod_spec({mig("1g.5gb"): "1"})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def phase(tell: NamespacedKubectl, name: str) -> str:
    return tell.kubectl("get", "pod", name, "-o", "jsonpath={.status.phase}")


def switch(tell: NamespacedKubectl, mode: str) -> None:
    patch = json.dumps({"spec": {"emulatedMode": mode}})
    tell.cluster.kubectl("patch", "dasoperator", "cluster", "-n", DAS, "--type=merge", "-p", patch)


def condition(tell: NamespacedKubectl, kind: str) -> dict[str, str]:
    found = json.loads(tell.cluster.kubectl("get", "dasoperator", "cluster", "-n", DAS, "-o", "json"))
    entries: list[dict[str, str]] = found.get("status", {}).get("conditions", [])
    return next((entry for entry in entries if entry["type"] == kind), {"status": "", "message": ""})


def assert_contains(found: Any, wanted: Any, where: str = "claim") -> None:
    """Everything that the example shows is there; `any` stands for a value of its own."""
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            assert key in found, f"{where}.{key} is missing"
            assert_contains(found[key], value, f"{where}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for index, value in enumerate(wanted):
            assert_contains(found[index], value, f"{where}[{index}]")
    else:
        assert wanted in ("any", found), f"{where} is {found!r}, not {wanted!r}"
