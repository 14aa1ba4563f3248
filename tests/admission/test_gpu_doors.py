"""T05: which manifests reach a GPU that is not allocated to their pod, on either API server, webhook up and down."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apportion import manifests
from tests.admission import webhook_service
from tests.admission.accounts import separate_cluster
from tests.admission.gpu_doors import (
    DOORS,
    HARMLESS,
    LARGE,
    MEMORY,
    REVIEWED,
    UNKNOWN_VARIABLES,
    VISIBLE,
    Door,
    variable,
)
from tests.builders.pods import container, pod
from tests.environments.api import RefusedError
from tests.environments.cluster import Cluster
from tests.environments.waiting import until

pytestmark = pytest.mark.kubectl
__all__ = ["separate_cluster"]  # a fixture, found by name

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
POLICY = "ValidatingAdmissionPolicy 'pods.gpu-guard.apportion.io'"
EXEMPT = {"apportion.io/gpu-guard": "exempt"}
RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}
TENANT = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "tenant"},
    "rules": [
        {
            "apiGroups": [""],
            "resources": ["namespaces", "namespaces/status", "namespaces/finalize"],
            "verbs": ["get", "create", "update", "patch"],
        },
    ],
}


@pytest.fixture(scope="module")
def installed(separate_cluster: Cluster) -> Cluster:
    """Everything but the workloads."""
    chosen = [entry for entry in manifests.load() if entry["kind"] not in {"Deployment", "DaemonSet"}]
    separate_cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all([*chosen, RUNTIME_CLASS, TENANT]))
    webhook_service.switch_sharing(separate_cluster)
    until(lambda: refusal(separate_cluster, "default", DOORS["annotation: cdi"].body), "the policies are in force")
    return separate_cluster


@pytest.fixture
def workspace(installed: Cluster) -> Iterator[str]:
    name = f"doors-{secrets.token_hex(3)}"
    namespace(installed, name)
    yield name
    installed.kubectl("delete", "namespace", name, "--wait=false")


def test_t05_an_outage_of_the_webhook_opens_no_door_and_stops_no_harmless_pod(
    installed: Cluster, workspace: str
) -> None:
    wrong = []
    for case, door in DOORS.items():
        said = refusal(installed, workspace, door.body)
        if not (door.sent and "failed calling webhook" in said) and not explains(door, said):
            wrong.append(f"{case}: {said or 'admitted'}")
    wrong += [f"{case}: {said}" for case, body in HARMLESS.items() if (said := refusal(installed, workspace, body))]
    assert wrong == []
    for case, body in REVIEWED.items():
        assert "failed calling webhook" in refusal(installed, workspace, body), case


def test_t05_d02_pods_with_variables_from_elsewhere_start_during_an_outage(installed: Cluster, workspace: str) -> None:
    unknown = {"envFrom": UNKNOWN_VARIABLES}
    assert refusal(installed, workspace, pod("story", containers=[container(**unknown)])) == ""
    fix = "set NVIDIA_VISIBLE_DEVICES to void in the env of the container"
    said = refusal(installed, workspace, LARGE)
    assert "spec.containers[main].envFrom: these variables could select a GPU" in said
    assert fix in said
    path = create(installed, workspace, pod("later", containers=[container(**unknown)]))
    with pytest.raises(RefusedError, match=fix):
        debug(installed, path, {"name": "debug", **unknown})
    debug(installed, path, {"name": "debug", "env": [variable(VISIBLE, "void")], **unknown})


def test_t05_a_pod_from_before_the_installation_can_still_be_changed_and_deleted(
    installed: Cluster, workspace: str
) -> None:
    name = namespace(installed, f"{workspace}-old", EXEMPT)
    old = pod("old", namespace=name, containers=[container(env=[variable(VISIBLE, "all")])])
    old["metadata"]["annotations"] = {"cdi.k8s.io/mine": "nvidia.com/gpu=all"}
    path = create(installed, name, old)
    installed.kubectl("label", "namespace", name, "apportion.io/gpu-guard-")
    until(lambda: refusal(installed, name, old), "the namespace is checked")
    installed.api.send("PATCH", path, {"metadata": {"labels": {"seen": "yes"}}}, MERGE)
    debug(installed, path, {"name": "debug"})
    installed.api.delete(path)
    installed.kubectl("delete", "namespace", name, "--wait=false")


def test_t05_only_administrators_exempt_a_namespace(installed: Cluster, workspace: str) -> None:
    every = DOORS["environment: all devices"].body
    for name in ("gpu-operator", "gpu-webhook"):
        namespace(installed, name)
        assert refusal(installed, name, every), f"{name} is exempt by its name"
        installed.kubectl("delete", "namespace", name, "--wait=false")
    tenant = account(installed, workspace)
    for name in ("kai-scheduler", "kai-resource-reservation"):
        said = installed.kubectl(*tenant, "create", "namespace", name, check=False)
        assert f"metadata.name: '{name}': pods of a namespace with this name can use every GPU" in said
    labelled = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{workspace}-x", "labels": EXEMPT}}
    said = installed.kubectl(*tenant, "create", "-f", "-", input=json.dumps(labelled), check=False)
    assert "needs the right to the verb exempt on namespaces of apportion.io" in said
    patch = json.dumps({"metadata": {"labels": EXEMPT}})
    for part in ((), ("--subresource=status",)):
        said = installed.kubectl(*tenant, "patch", "namespace", workspace, "-p", patch, *part, check=False)
        assert "metadata.labels[apportion.io/gpu-guard]" in said, part
    installed.kubectl(*tenant, "label", "namespace", workspace, "team=a")
    assert refusal(installed, workspace, every)

    installed.kubectl("label", "namespace", workspace, "apportion.io/gpu-guard=exempt")
    until(lambda: not refusal(installed, workspace, every), "the namespace is exempt")
    grant = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"exempt-{workspace}"},
        "rules": [{"apiGroups": ["apportion.io"], "resources": ["namespaces"], "verbs": ["exempt"]}],
    }
    installed.kubectl("create", "-f", "-", input=json.dumps(grant))
    bind(installed, workspace, f"exempt-{workspace}")
    until(
        lambda: "created" in installed.kubectl(*tenant, "create", "-f", "-", input=json.dumps(labelled), check=False),
        "a role gives the right",
    )
    installed.kubectl("delete", "namespace", f"{workspace}-x", "--wait=false")


@pytest.fixture(scope="class")
def webhook(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with webhook_service.running(installed, tmp_path_factory.mktemp("webhook")):
        yield


@pytest.mark.usefixtures("webhook")
class TestWithWebhook:
    def test_t05_d04_each_door_is_refused_with_field_value_and_fix(self, installed: Cluster, workspace: str) -> None:
        said = {case: refusal(installed, workspace, door.body) for case, door in DOORS.items()}
        unexplained = {case: said[case] for case, door in DOORS.items() if not explains(door, said[case])}
        assert unexplained == {}
        legitimate = HARMLESS | REVIEWED | {"large": LARGE}
        admitted = {case: refusal(installed, workspace, body) for case, body in legitimate.items()}
        assert [f"{case}: {text}" for case, text in admitted.items() if text] == []

    def test_t05_d02_variables_from_elsewhere_select_no_gpu(
        self, installed: Cluster, workspace: str, tmp_path: Path
    ) -> None:
        source = {"configMapRef": {"name": "devices"}}
        prefixed = {"secretRef": {"name": "devices"}, "prefix": "NVIDIA_"}
        manifest = pod(
            "story",
            namespace=workspace,
            containers=[
                container(envFrom=[source]),
                container("second", envFrom=[prefixed], env=[variable("A", "b")]),
                container("own", envFrom=[source], env=[variable(VISIBLE, "none")]),
                container("plain"),
                container("slice", envFrom=[source], limits={"mig.das.com/1g.5gb": "1"}),
            ],
            init=[container("first", envFrom=[source], limits={"nvidia.com/gpu": "0"})],
        )
        file = tmp_path / "pod.yaml"
        file.write_text(yaml.safe_dump(manifest))
        installed.kubectl("apply", "-f", str(file))
        live = installed.api.get(f"/api/v1/namespaces/{workspace}/pods/story")
        assert environment(live) == {
            "first": {VISIBLE: "void"},
            "main": {VISIBLE: "void"},
            "second": {"A": "b", VISIBLE: "void"},
            "own": {VISIBLE: "none"},
            "plain": {},
            "slice": {},
        }
        installed.kubectl("apply", "-f", str(file))
        installed.kubectl("apply", "-f", str(file), "--server-side", "--force-conflicts")
        path = f"/api/v1/namespaces/{workspace}/pods/story"
        installed.api.send("PUT", path, manifest | {"spec": live["spec"] | {"containers": as_written(live, manifest)}})
        assert installed.api.get(path)["spec"] == live["spec"]

    def test_t05_updates_and_ephemeral_containers_open_no_door(self, installed: Cluster, workspace: str) -> None:
        volumes = [{"name": "null", "hostPath": {"path": "/dev/null"}}]
        path = create(installed, workspace, pod("later", containers=[container()], volumes=volumes))
        annotation = {"metadata": {"annotations": {"cdi.k8s.io/mine": "nvidia.com/gpu=all"}}}
        with pytest.raises(RefusedError, match=r"metadata.annotations\[cdi.k8s.io/mine\]: 'nvidia.com/gpu=all'"):
            installed.api.send("PATCH", path, annotation, MERGE)
        installed.api.send("PATCH", path, {"metadata": {"annotations": {"example.com/mine": "yes"}}}, MERGE)
        refused = {
            f"spec.ephemeralContainers\\[debug\\].env\\[{VISIBLE}\\]: 'all'": {"env": [variable(VISIBLE, "all")]},
            r"spec.ephemeralContainers\[debug\].volumeMounts\[null\].mountPath": {
                "volumeMounts": [{"name": "null", "mountPath": "/var/run/nvidia-container-devices/all"}]
            },
        }
        for said, part in refused.items():
            with pytest.raises(RefusedError, match=said):
                debug(installed, path, {"name": "debug", **part})
        debug(installed, path, {"name": "debug", "envFrom": [{"configMapRef": {"name": "devices"}}]})
        debug(installed, path, {"name": "again", "env": [variable(VISIBLE, "void")]})
        assert environment(installed.api.get(path)) == {
            "main": {},
            "debug": {VISIBLE: "void"},
            "again": {VISIBLE: "void"},
        }

    def test_t05_m02_jobs_hold_no_memory_without_a_slice(self, installed: Cluster, workspace: str) -> None:
        spec = MEMORY["memory alone"].body["spec"]
        with pytest.raises(RefusedError, match=r"container main: resources.limits\[gpu.das.com/mem\]: '40'"):
            job(installed, workspace, spec)
        job(installed, workspace, {"containers": [container(limits={"nvidia.com/mig-1g.5gb": "2"})]})


def refusal(cluster: Cluster, where: str, body: Json) -> str:
    """What the API server says to a pod that it refuses; empty if it would admit it."""
    named = body | {"metadata": body["metadata"] | {"namespace": where}}
    try:
        cluster.api.send("POST", f"/api/v1/namespaces/{where}/pods?dryRun=All", named)
    except RefusedError as error:
        text: str = json.loads(error.body)["message"]
        return text
    return ""


def explains(door: Door, said: str) -> bool:
    return POLICY in said and door.says in said and door.fix in said


def create(cluster: Cluster, where: str, body: Json) -> str:
    named = body | {"metadata": body["metadata"] | {"namespace": where}}
    cluster.api.create(f"/api/v1/namespaces/{where}/pods", named)
    return f"/api/v1/namespaces/{where}/pods/{body['metadata']['name']}"


def debug(cluster: Cluster, path: str, body: Json) -> None:
    change = {"spec": {"ephemeralContainers": [{"image": "busybox:1.36"} | body]}}
    cluster.api.send("PATCH", f"{path}/ephemeralcontainers", change, STRATEGIC)


def job(cluster: Cluster, where: str, spec: Json) -> None:
    template = {"spec": spec | {"restartPolicy": "Never"}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"template": template}}
    cluster.api.create(f"/apis/batch/v1/namespaces/{where}/jobs", body)


def environment(live: Json) -> dict[str, dict[str, str]]:
    listed = [
        each for key in ("initContainers", "containers", "ephemeralContainers") for each in live["spec"].get(key, [])
    ]
    return {each["name"]: {entry["name"]: entry["value"] for entry in each.get("env", [])} for each in listed}


def as_written(live: Json, manifest: Json) -> list[Json]:
    """The containers of the live pod with the environment of its manifest, as a client that replaces it sends them."""
    written = {each["name"]: each.get("env", []) for each in manifest["spec"]["containers"]}
    return [each | {"env": written[each["name"]]} for each in live["spec"]["containers"]]


def namespace(cluster: Cluster, name: str, labels: Json | None = None) -> str:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}}
    cluster.kubectl("create", "-f", "-", input=json.dumps(body))
    default = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    until(lambda: cluster.api.exists(default), "the default account of the namespace")
    return name


def account(cluster: Cluster, where: str) -> tuple[str, ...]:
    """Options of kubectl for a user who may create and change namespaces."""
    cluster.kubectl("create", "serviceaccount", "tenant", "-n", where)
    bind(cluster, where, "tenant")
    token = cluster.kubectl("create", "token", "tenant", "-n", where).strip()
    until(
        lambda: "yes" in cluster.kubectl("--token", token, "auth", "can-i", "create", "namespaces", check=False),
        "the role is in force",
    )
    return ("--token", token)


def bind(cluster: Cluster, where: str, role: str) -> None:
    subject = f"--serviceaccount={where}:tenant"
    cluster.kubectl("create", "clusterrolebinding", f"{role}-{where}", f"--clusterrole={role}", subject)
