"""The operator under its own service account on either API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from apportion import manifests
from apportion.apis import names
from tests.admission.accounts import plane, refusals, separate_cluster
from tests.environments.cluster import Cluster
from tests.environments.sandbox_init import SERVICE_ADDRESS
from tests.environments.waiting import until

pytestmark = pytest.mark.kubectl
__all__ = ["separate_cluster"]  # a fixture, found by name

WORKLOADS = ("deployment/das-operator-webhook", "deployment/das-scheduler", "daemonset/das-daemonset")
CONFIGURATIONS = (
    "mutatingwebhookconfiguration/das-mutating-webhook-configuration",
    "validatingwebhookconfiguration/das-validating-webhook-configuration",
)
IN = ("-n", "das-operator")
NOWHERE = {"example.com/nowhere": "true"}


@pytest.fixture
def installed(separate_cluster: Cluster) -> Cluster:
    """All manifests, with no pods: this is about what the operator writes, not about what runs.

    Made anew for each test: the end of a plane takes all workloads with it.
    """
    install(separate_cluster)
    separate_cluster.kubectl("wait", "--for=condition=Established", "crd/dasoperators.inference.redhat.com")
    one = {"apiVersion": "inference.redhat.com/v1alpha1", "kind": "DASOperator", "metadata": {"name": "cluster"}}
    switches = {"managementState": "Managed", "emulatedMode": "enabled", "nodeSelector": NOWHERE}
    separate_cluster.kubectl("delete", "dasoperator", "cluster", *IN, "--ignore-not-found")
    separate_cluster.kubectl("create", *IN, "-f", "-", input=json.dumps(one | {"spec": switches}))
    return separate_cluster


def test_s10_r01_switches_act_without_needless_rollouts(installed: Cluster, tmp_path: Path) -> None:
    arguments = ["operator", f"--probes={SERVICE_ADDRESS}:9403"]
    until(lambda: all(observed(installed, name) for name in WORKLOADS), "controllers have seen the workloads")
    before = [generation(installed, name) for name in WORKLOADS]
    with plane(installed, "das-operator", arguments, tmp_path):
        until(lambda: condition(installed, "Available") == "False", "conditions are reported")
        until(lambda: managers(installed, "daemonset/das-daemonset"), "the operator has applied its fields")
        assert [generation(installed, name) for name in WORKLOADS] == before

        change(installed, {"logLevel": "Debug", "emulatedMode": "disabled", "nodeSelector": {"pool": "gpu"}})
        until(lambda: told(installed, "daemonset/das-daemonset").get("APPORTION_DRIVER") == "nvml", "nvml")
        until(lambda: told(installed, "deployment/das-scheduler").get("APPORTION_LOG_LEVEL") == "Debug", "log level")
        assert selector(installed)["pool"] == "gpu"

        change(installed, {"emulatedMode": "enabled", "nodeSelector": {"pool": None}})
        until(lambda: "pool" not in selector(installed), "the selector is given back")
        until(lambda: "APPORTION_RUNTIME_CLASS" not in told(installed, "deployment/das-operator-webhook"), "given back")
        assert told(installed, "daemonset/das-daemonset")["APPORTION_DRIVER"] == "emulated"
        refusal = installed.kubectl(
            "patch", "dasoperator", "cluster", *IN, "--type=merge", "-p", '{"spec":{"emulatedMode":"on"}}', check=False
        )
        assert "Unsupported value" in refusal
    assert refusals(installed) == []


def test_s10_r01_removed_takes_everything_away_and_managed_brings_it_back(installed: Cluster, tmp_path: Path) -> None:
    with plane(installed, "das-operator", ["operator", f"--probes={SERVICE_ADDRESS}:9403"], tmp_path):
        change(installed, {"managementState": "Removed"})
        until(lambda: not existing(installed), "all is gone")
        until(lambda: not any(is_on(installed, name) for name in CONFIGURATIONS), "webhooks are turned off")
        until(lambda: condition(installed, "Progressing") == "False", "conditions say that it is over")
        assert condition(installed, "Available") == "False"
        change(installed, {"managementState": "Managed"})
        until(lambda: existing(installed) == sorted(WORKLOADS), "all is back")
        until(lambda: all(is_on(installed, name) for name in CONFIGURATIONS), "webhooks are turned on")
        until(lambda: "das-operator-removed" not in installed.kubectl("get", "configmaps", *IN), "nothing is kept")
    assert refusals(installed) == []


def test_q02_r01_the_default_queues_are_made_with_the_shipped_rights(installed: Cluster, tmp_path: Path) -> None:
    installed.kubectl("wait", "--for=condition=Established", "crd/queues.scheduling.run.ai")
    installed.kubectl("delete", "queues", "--all")  # of the tests before
    with plane(installed, "das-operator", ["operator", f"--probes={SERVICE_ADDRESS}:9403"], tmp_path):
        until(lambda: "default-queue" in queues(installed), "the default queues exist")
    assert sorted(queues(installed)) == ["default-parent-queue", "default-queue"]
    assert refusals(installed) == []


def test_q11_r01_a_role_with_the_label_lets_the_scheduler_read_another_kind(installed: Cluster) -> None:
    until(lambda: can_list(installed, "jobs.batch"), "the shipped kinds are readable")
    assert can_list(installed, "pytorchjobs.kubeflow.org")  # not installed here: the right costs nothing
    assert not can_list(installed, "workflows.argoproj.io")
    rule = {"apiGroups": ["argoproj.io"], "resources": ["workflows"], "verbs": ["get", "list", "watch"]}
    metadata = {"name": "argo-owners", "labels": {names.AGGREGATE_TO_SCHEDULER_LABEL: "true"}}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, "rules": [rule]}
    installed.kubectl("create", "-f", "-", input=json.dumps(role))
    until(lambda: can_list(installed, "workflows.argoproj.io"), "the further kind is readable")
    installed.kubectl("delete", "clusterrole", "argo-owners")


def test_q11_installing_again_keeps_the_rights_that_were_aggregated(installed: Cluster) -> None:
    until(lambda: can_list(installed, "jobs.batch"), "the shipped kinds are readable")
    role = next(entry for entry in manifests.load() if "aggregationRule" in entry)
    for how in (("--server-side",), ("--server-side",), ()):
        installed.kubectl("apply", *how, "-f", "-", input=json.dumps(role))
        assert can_list(installed, "jobs.batch")


def queues(cluster: Cluster) -> list[str]:
    found = cluster.api.items("/apis/scheduling.run.ai/v2/queues")
    return [entry["metadata"]["name"] for entry in found]


def can_list(cluster: Cluster, resource: str) -> bool:
    name, _, group = resource.partition(".")
    attributes = {"verb": "list", "group": group, "resource": name}
    spec = {"user": "system:serviceaccount:das-operator:das-scheduler", "resourceAttributes": attributes}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    made = cluster.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(made["status"]["allowed"])


def install(cluster: Cluster) -> None:
    objects = manifests.load()
    for entry in objects:
        if entry["kind"] == "Deployment":
            entry["spec"]["replicas"] = 0
        if entry["kind"] == "DaemonSet":
            entry["spec"]["template"]["spec"]["nodeSelector"] = NOWHERE
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects))


def is_on(cluster: Cluster, name: str) -> bool:
    webhooks = json.loads(cluster.kubectl("get", name, "-o", "json"))["webhooks"]
    return all(entry["name"] != "is-managed" for webhook in webhooks for entry in webhook["matchConditions"])


def existing(cluster: Cluster) -> list[str]:
    return sorted(
        name for name in WORKLOADS if cluster.kubectl("get", name, *IN, "-o", "name", "--ignore-not-found").strip()
    )


def get(cluster: Cluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", name, *IN, "-o", "json", "--show-managed-fields"))
    return found


def generation(cluster: Cluster, name: str) -> int:
    return int(get(cluster, name)["metadata"]["generation"])


def observed(cluster: Cluster, name: str) -> bool:
    body = get(cluster, name)
    return bool(body.get("status", {}).get("observedGeneration") == body["metadata"]["generation"])


def managers(cluster: Cluster, name: str) -> bool:
    return any(entry["manager"] == "das-operator" for entry in get(cluster, name)["metadata"]["managedFields"])


def told(cluster: Cluster, name: str) -> dict[str, str]:
    env = get(cluster, name)["spec"]["template"]["spec"]["containers"][0]["env"]
    return {entry["name"]: entry.get("value", "") for entry in env}


def selector(cluster: Cluster) -> dict[str, str]:
    pod = get(cluster, "daemonset/das-daemonset")["spec"]["template"]["spec"]
    found: dict[str, str] = pod.get("nodeSelector", {})
    return found


def condition(cluster: Cluster, kind: str) -> str | None:
    text = cluster.kubectl("get", "dasoperator", "cluster", *IN, "-o", "json")
    entries = json.loads(text).get("status", {}).get("conditions", [])
    return next((entry["status"] for entry in entries if entry["type"] == kind), None)


def change(cluster: Cluster, fields: dict[str, Any]) -> None:
    cluster.kubectl("patch", "dasoperator", "cluster", *IN, "--type=merge", "-p", json.dumps({"spec": fields}))
