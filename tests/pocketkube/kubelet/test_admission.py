"""What a kubelet refuses, in its own words."""

from __future__ import annotations

from typing import Any

import pytest

from pocketkube.kubelet.pods import admission
from tests.builders import pods

NODE: dict[str, Any] = {
    "metadata": {"name": "n1", "labels": {"pool": "a"}},
    "spec": {},
    "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "3"}},
}


def pod(cpu: str = "", **spec: Any) -> dict[str, Any]:
    requests = {"cpu": cpu} if cpu else {}
    return pods.pod("p", uid="u", containers=[pods.container(requests=requests)], **spec)


def port(number: int) -> dict[str, Any]:
    made = pod()
    made["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": number}]
    return made


@pytest.mark.parametrize(
    ("wanted", "others", "reason", "text"),
    [
        (pod("1500m"), [pod("1")], "OutOfcpu", "resource: cpu, requested: 1500, used: 1000, capacity: 2000"),
        (pod(), [pod(), pod(), pod()], "OutOfpods", "resource: pods, requested: 1, used: 3, capacity: 3"),
        (pod(nodeSelector={"pool": "b"}), [], "NodeAffinity", "didn't match Pod's node affinity/selector"),
        (port(80), [port(80)], "NodePorts", "didn't have free ports"),
    ],
)
def test_refusals(wanted: dict[str, Any], others: list[dict[str, Any]], reason: str, text: str) -> None:
    rejection = admission.check(wanted, NODE, others)
    assert rejection is not None
    assert rejection.reason == reason
    assert text in rejection.message


def test_what_fits_is_taken_and_unknown_resources_are_let_through() -> None:
    wanted = pod("1")
    wanted["spec"]["containers"][0]["resources"]["limits"] = {"mig.das.com/1g.5gb": "1"}
    assert admission.check(wanted, NODE, [pod("1")]) is None


def test_only_no_execute_taints_count() -> None:
    node = NODE | {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
    assert admission.check(pod(), node, []) is None
    node = NODE | {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}
    rejection = admission.check(pod(), node, [])
    assert rejection is not None
    assert rejection.reason == "TaintToleration"
    tolerant = pod(tolerations=[{"key": "k", "operator": "Exists"}])
    assert admission.check(tolerant, node, []) is None
