"""T05: who writes what about shared GPUs, on either API server, without the webhook.

All users of these tests have every right of RBAC to pods, ConfigMaps and BindRequests, and one has every right at all
in its own namespace: what is refused, the policies refuse.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from apportion import manifests
from tests.admission.accounts import separate_cluster
from tests.admission.test_shares import FRACTION, PREFIX, VOID, references, sharer
from tests.builders.pods import container, pod
from tests.environments.api import RefusedError
from tests.environments.cluster import Cluster
from tests.environments.waiting import until

pytestmark = pytest.mark.kubectl
__all__ = ["separate_cluster"]  # a fixture, found by name

Json = dict[str, Any]

BINDER = "system:serviceaccount:kai-scheduler:binder"
RESERVATIONS = "kai-resource-reservation"
RESERVE = f"system:serviceaccount:{RESERVATIONS}:kai-resource-reservation"
COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
NAMESPACES = "system:serviceaccount:kube-system:namespace-controller"
CONTROLLERS = "system:kube-controller-manager"
SCHEDULERS = ("system:serviceaccount:das-operator:das-scheduler", "system:serviceaccount:kai-scheduler:kai-scheduler")
TENANT = "tenant"
NAMESPACE_ADMIN = "namespace-admin"
USERS = (BINDER, RESERVE, COLLECTOR, NAMESPACES, CONTROLLERS, *SCHEDULERS, TENANT)
POWERFUL = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "powerful"},
    "rules": [
        {"apiGroups": [""], "resources": ["pods", "pods/status", "pods/binding", "configmaps"], "verbs": ["*"]},
        {"apiGroups": ["scheduling.run.ai"], "resources": ["bindrequests", "bindrequests/status"], "verbs": ["*"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"]},
    ],
}
BOUND = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "powerful"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "powerful"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user} for user in USERS],
}
GROUP = {"labels": {"runai-gpu-group": "g"}}
MARKS: dict[str, Json] = {
    "metadata.labels[runai-gpu-group]: 'g'": GROUP,
    "metadata.labels[runai-gpu-group/g]: 'g'": {"labels": {"runai-gpu-group/g": "g"}},
    **{
        f"metadata.annotations[{name}]: 'x'": {"annotations": {name: "x"}}
        for name in (
            "apportion.io/shared-gpus",
            "received-resource-type",
            "apportion.io/sharers",
            "apportion.io/planned-gpu",
            "run.ai/reserve_for_gpu_index",
        )
    },
}
EVERYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
ONLY_BINDER = "only the binder sets, changes or removes it"
OF_THE_BINDER = "are created, changed and deleted by the binder"
OF_THE_SCHEDULER = "only the scheduler creates BindRequests"
WITH_THEIR_POD = "only the scheduler and the binder change and delete BindRequests"
BIND_REQUESTS = "/apis/scheduling.run.ai/v1alpha2/namespaces/{}/bindrequests"
SHARED = FRACTION | {PREFIX: "w-abcdefg-shared-gpu"}


@pytest.fixture(scope="module")
def installed(separate_cluster: Cluster) -> Cluster:
    """The policies, and no webhook."""
    left_out = {"Deployment", "DaemonSet", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
    chosen = [entry for entry in manifests.load() if entry["kind"] not in left_out]
    separate_cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all([*chosen, POWERFUL, BOUND]))
    for name in ("kai-scheduler", RESERVATIONS):
        namespace(separate_cluster, name)
    refused = marked("x", {"metadata": GROUP})
    probe = (separate_cluster, "default", refused, TENANT)
    until(lambda: ONLY_BINDER in create(*probe, dry=True), "the policies are in force")
    return separate_cluster


@pytest.fixture
def workspace(installed: Cluster) -> Iterator[str]:
    name = f"sharing-{secrets.token_hex(3)}"
    namespace(installed, name)
    grant(installed, name, NAMESPACE_ADMIN, EVERYTHING)
    yield name
    installed.kubectl("delete", "namespace", name, "--wait=false")


def test_t05_only_the_binder_says_which_gpu_a_pod_shares(installed: Cluster, workspace: str) -> None:
    for index, (said, metadata) in enumerate(MARKS.items()):
        body = marked(f"p{index}", {"metadata": metadata})
        for user in (TENANT, NAMESPACE_ADMIN, CONTROLLERS, RESERVE):
            refusal = create(installed, workspace, body, user)
            assert said in refusal, refusal
            assert ONLY_BINDER in refusal
        assert "created" in create(installed, workspace, body, BINDER)
        (kind, (name, *_)) = next((kind, list(values)) for kind, values in metadata.items())
        for value, user in (("other", TENANT), (None, TENANT), ("other", NAMESPACE_ADMIN)):
            refusal = patch(installed, workspace, f"p{index}", {"metadata": {kind: {name: value}}}, user)
            assert ONLY_BINDER in refusal, refusal
            assert "leave it as it is" in refusal
        assert "patched" in patch(installed, workspace, f"p{index}", {"metadata": {"labels": {"seen": "y"}}}, TENANT)
        assert "patched" in patch(installed, workspace, f"p{index}", {"metadata": {kind: {name: None}}}, BINDER)


def test_t05_no_detour_marks_a_pod_as_a_sharer(installed: Cluster, workspace: str) -> None:
    plain = pod("plain", containers=[container()], schedulerName="nobody")
    assert "created" in create(installed, workspace, plain, TENANT)
    by_status = patch(installed, workspace, "plain", {"metadata": GROUP}, TENANT, "--subresource=status")
    assert ONLY_BINDER in by_status, by_status
    refusal = bind(installed, workspace, "plain", TENANT, annotations={"apportion.io/shared-gpus": "x"})
    assert ONLY_BINDER in refusal, refusal
    assert "Success" in bind(installed, workspace, "plain", TENANT)
    template = {"metadata": {"labels": {"app": "a"} | GROUP["labels"]}, "spec": {"containers": [container()]}}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    assert "created" in create(installed, workspace, deployment, TENANT)

    def told() -> bool:
        return ONLY_BINDER in installed.kubectl("get", "replicasets,events", "-n", workspace, "-o", "yaml")

    until(told, "the controller could not create the pod")


def test_t05_administrators_can_repair_marks(installed: Cluster, workspace: str) -> None:
    assert "created" in create(installed, workspace, marked("p", {"metadata": GROUP}))
    assert "patched" in patch(installed, workspace, "p", {"metadata": {"labels": {"runai-gpu-group": None}}})


def test_t04_t05_a_reservation_pod_writes_its_gpu_and_nothing_else(installed: Cluster, workspace: str) -> None:
    gpu = {"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": "GPU-1"}}}
    body = marked("reservation", {"metadata": GROUP})
    for where in (RESERVATIONS, workspace):
        assert "created" in create(installed, where, body, BINDER)
    assert "patched" in patch(installed, RESERVATIONS, "reservation", gpu, RESERVE)
    assert ONLY_BINDER in patch(installed, workspace, "reservation", gpu, RESERVE)
    for metadata in (
        {"labels": {"runai-gpu-group": "other"}},
        {"annotations": {"apportion.io/sharers": "{}"}},
        {"annotations": {"apportion.io/sharers": "{}", "run.ai/reserve_for_gpu_index": "GPU-2"}},
    ):
        assert ONLY_BINDER in patch(installed, RESERVATIONS, "reservation", {"metadata": metadata}, RESERVE)
    installed.kubectl("delete", "pod", "-n", RESERVATIONS, "reservation", "--now")


def test_t05_config_maps_with_gpus_belong_to_the_binder(installed: Cluster, workspace: str) -> None:
    for name in ("w-abcdefg-shared-gpu-0", "w-abcdefg-shared-gpu-i12", "x-shared-gpu-3"):
        body = config_map(name)
        for user in (TENANT, CONTROLLERS, COLLECTOR, ""):
            refusal = create(installed, workspace, body, user)
            assert f"metadata.name: '{name}'" in refusal, refusal
            assert OF_THE_BINDER in refusal
        assert "created" in create(installed, workspace, body, BINDER)
        change = {"data": {"NVIDIA_VISIBLE_DEVICES": "all"}}
        assert OF_THE_BINDER in patch(installed, workspace, name, change, TENANT, kind="configmap")
        refusal = delete(installed, workspace, "configmap", name, user=TENANT)
        assert OF_THE_BINDER in refusal, refusal
        assert "delete the pod instead" in refusal
    path = f"/api/v1/namespaces/{workspace}/configmaps"
    refusal = installed.kubectl("delete", "--raw", path, "--as", TENANT, check=False)
    assert OF_THE_BINDER in refusal, refusal
    assert installed.api.exists(f"{path}/w-abcdefg-shared-gpu-0")
    assert "deleted" in delete(installed, workspace, "configmap", "w-abcdefg-shared-gpu-0", user=COLLECTOR)
    assert "deleted" in delete(installed, workspace, "configmap", "w-abcdefg-shared-gpu-i12", user=NAMESPACES)
    for name in ("shared-gpu", "x-shared-gpu", "x-shared-gpu-a", "x-shared-gpu-0-evar", "myshared-gpu-0x"):
        assert "created" in create(installed, workspace, config_map(name), TENANT)
        assert "deleted" in delete(installed, workspace, "configmap", name, user=TENANT)


def test_t05_config_maps_with_gpus_go_with_their_pod_and_their_namespace(installed: Cluster, workspace: str) -> None:
    owner = owner_of(installed, workspace, "owner")
    for name, owners in (("a-shared-gpu-0", [owner]), ("b-shared-gpu-0", [])):
        body = config_map(name) | {"metadata": {"name": name, "ownerReferences": owners}, "immutable": True}
        assert "created" in create(installed, workspace, body, BINDER)
    delete(installed, workspace, "pod", "owner", "--now", user=TENANT)
    path = f"/api/v1/namespaces/{workspace}/configmaps"
    until(lambda: not installed.api.exists(f"{path}/a-shared-gpu-0"), "it is collected with its pod", within=60)
    assert installed.api.exists(f"{path}/b-shared-gpu-0")
    installed.kubectl("delete", "namespace", workspace, "--wait=false")
    until(lambda: not installed.api.exists(f"/api/v1/namespaces/{workspace}"), "the namespace is gone", within=60)
    namespace(installed, workspace)


def test_t05_only_the_scheduler_and_the_binder_write_bind_requests(installed: Cluster, workspace: str) -> None:
    waiting = owner_of(installed, workspace, "waiting")
    body, failed = bind_request(waiting), {"status": {"phase": "Failed"}}
    for user in (TENANT, NAMESPACE_ADMIN, BINDER, CONTROLLERS, COLLECTOR, RESERVE):
        refusal = create(installed, workspace, body, user)
        assert "spec.podName: 'waiting'" in refusal, refusal
        assert OF_THE_SCHEDULER in refusal
    of_status = ("--subresource=status",)
    for scheduler in SCHEDULERS:
        assert "created" in create(installed, workspace, body, scheduler)
        for user in (TENANT, NAMESPACE_ADMIN):
            refusals = (
                patch(installed, workspace, "waiting", {"spec": {"selectedNode": "n2"}}, user, kind="bindrequest"),
                patch(installed, workspace, "waiting", failed, user, *of_status, kind="bindrequest"),
                delete(installed, workspace, "bindrequest", "waiting", user=user),
                installed.kubectl("delete", "--raw", BIND_REQUESTS.format(workspace), "--as", user, check=False),
            )
            assert all(WITH_THEIR_POD in said and "delete the pod instead" in said for said in refusals), refusals
        assert "patched" in patch(installed, workspace, "waiting", failed, BINDER, *of_status, kind="bindrequest")
        refusal = patch(installed, workspace, "waiting", {"spec": {"selectedNode": "n2"}}, BINDER, kind="bindrequest")
        assert WITH_THEIR_POD in refusal, refusal
        assert "deleted" in delete(installed, workspace, "bindrequest", "waiting", user=scheduler)
    assert "created" in create(installed, workspace, body), "administrators repair"
    assert "deleted" in delete(installed, workspace, "bindrequest", "waiting", user="")


def test_t05_bind_requests_go_with_their_pod_and_their_namespace(installed: Cluster, workspace: str) -> None:
    path = BIND_REQUESTS.format(workspace)
    for name in ("a", "b"):
        body = bind_request(owner_of(installed, workspace, name))
        assert "created" in create(installed, workspace, body, SCHEDULERS[0])
    delete(installed, workspace, "pod", "a", "--now", user=NAMESPACE_ADMIN)
    until(lambda: not installed.api.exists(f"{path}/a"), "it is collected with its pod", within=60)
    assert installed.api.exists(f"{path}/b")
    installed.kubectl("delete", "namespace", workspace, "--wait=false")
    until(lambda: not installed.api.exists(f"/api/v1/namespaces/{workspace}"), "the namespace is gone", within=60)
    namespace(installed, workspace)


def test_t05_pods_are_bound_by_those_who_may_bind_in_the_whole_cluster(installed: Cluster, workspace: str) -> None:
    for name in ("a", "b", "c"):
        create(installed, workspace, pod(name, containers=[container()], schedulerName="nobody"), NAMESPACE_ADMIN)
    for plural in ("pods/a/binding", "bindings"):
        said = bind(installed, workspace, "a", NAMESPACE_ADMIN, plural)
        assert "target.name: 'n': a pod is bound by its scheduler" in said, said
        assert "the verb bind on pods of apportion.io" in said
    assert "Success" in bind(installed, workspace, "a", TENANT)
    if installed.kind == "real":  # with the roles that Kubernetes itself ships
        assert "Success" in bind(installed, workspace, "c", "system:kube-scheduler")
    grant(installed, "", NAMESPACE_ADMIN, {"apiGroups": ["apportion.io"], "resources": ["pods"], "verbs": ["bind"]})
    until(lambda: "Success" in bind(installed, workspace, "b", NAMESPACE_ADMIN), "the right counts")
    installed.kubectl("delete", "clusterrole,clusterrolebinding", NAMESPACE_ADMIN)
    bound = installed.api.items(f"/api/v1/namespaces/{workspace}/pods")
    assert {each["metadata"]["name"] for each in bound if each["spec"].get("nodeName")} >= {"a", "b"}


GOOD = sharer(SHARED, container("a", env=references("w-abcdefg-shared-gpu-0")), container("b", env=[VOID]))
FORMS: dict[str, Json] = {
    "as the webhook writes it": GOOD,
    "the second container": sharer(
        SHARED | {"gpu-fraction-container-name": "b"},
        container("a", env=[VOID]),
        container("b", env=references("w-abcdefg-shared-gpu-1")),
    ),
    "an init container": sharer(
        SHARED | {"gpu-fraction-container-name": "first"},
        container("a", env=[VOID]),
        init=[container("zero", env=[VOID]), container("first", env=references("w-abcdefg-shared-gpu-i1"))],
    ),
    "a long name": sharer(
        FRACTION | {PREFIX: f"{'w' * 38}-abcdefg-shared-gpu"},
        container("a", env=references(f"{'w' * 38}-abcdefg-shared-gpu-0")),
        name=f"{'w' * 38}-1234",
    ),
    "a generated name": sharer(SHARED, container("a", env=references("w-abcdefg-shared-gpu-0")))
    | {"metadata": {"generateName": "w-", "annotations": SHARED}},
}


def reference(**source: Any) -> list[Json]:
    given = {"name": "w-abcdefg-shared-gpu-0", "key": "NVIDIA_VISIBLE_DEVICES"} | source
    return [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": given}}]


NAMED = SHARED | {"gpu-fraction-container-name": "b"}
SECRET = {"secretKeyRef": {"name": "w-abcdefg-shared-gpu-0", "key": "NVIDIA_VISIBLE_DEVICES"}}
OTHERS: dict[str, Json] = {
    "another index": sharer(
        SHARED, container("a", env=reference(name="w-abcdefg-shared-gpu-1")), container("b", env=[VOID])
    ),
    "no such index": sharer(SHARED, container("a", env=reference(name="w-abcdefg-shared-gpu-9"))),
    "the index of an init container": sharer(SHARED, container("a", env=reference(name="w-abcdefg-shared-gpu-i0"))),
    "a longer index": sharer(SHARED, container("a", env=reference(name="w-abcdefg-shared-gpu-00"))),
    "the config map of another pod": sharer(SHARED, container("a", env=reference(name="v-abcdefg-shared-gpu-0"))),
    "the prefix of another pod": sharer(SHARED, container("a", env=reference()), name="v"),
    "the prefix of a longer name": sharer(SHARED, container("a", env=reference()), name="ww"),
    "the prefix of a shorter name": sharer(
        FRACTION | {PREFIX: "w-w-abcdefg-shared-gpu"}, container("a", env=reference(name="w-w-abcdefg-shared-gpu-0"))
    ),
    "a preset node": sharer(SHARED, container("a", env=reference()), nodeName="n"),
    "a config map of the tenant": sharer(FRACTION | {PREFIX: "mine"}, container("a", env=reference(name="mine-0"))),
    "no annotation": sharer(FRACTION, container("a", env=reference())),
    "another key": sharer(SHARED, container("a", env=reference(key="OTHER"))),
    "an optional one": sharer(SHARED, container("a", env=reference(optional=True))),
    "a secret": sharer(SHARED, container("a", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": SECRET}])),
    "another container": sharer(NAMED, container("a", env=reference()), container("b", env=[VOID])),
    "a second one": sharer(SHARED, container("a", env=[*reference(), *reference(name="mine")])),
    "another scheduler": pod("w", containers=[container("a", env=reference())], annotations=SHARED),
    "no share": sharer({PREFIX: SHARED[PREFIX]}, container("a", env=reference())),
}


def test_t05_a_reference_is_admitted_only_as_the_webhook_writes_it(installed: Cluster, workspace: str) -> None:
    admitted = {case: create(installed, workspace, body, TENANT, dry=True) for case, body in FORMS.items()}
    assert {case: said for case, said in admitted.items() if "created" not in said} == {}
    refused = {case: create(installed, workspace, body, TENANT, dry=True) for case, body in OTHERS.items()}
    fix = "GPUs are assigned by the scheduler and cannot be selected directly"
    assert {case: said for case, said in refused.items() if fix not in said} == {}


def test_t05_every_container_of_a_pod_with_a_share_has_the_variable(installed: Cluster, workspace: str) -> None:
    for missing in (
        sharer(SHARED, container("a")),
        sharer(SHARED, container("a", env=reference()), container("b")),
        sharer(SHARED, container("a", env=reference()), init=[container("b")]),
    ):
        said = create(installed, workspace, missing, TENANT, dry=True)
        assert ".env[NVIDIA_VISIBLE_DEVICES]: every container of a pod with a share of a GPU needs it" in said, said
        assert "webhook" in said
    create(installed, workspace, GOOD, TENANT)
    debug = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox:1.36"}]}}
    path = f"/api/v1/namespaces/{workspace}/pods/w/ephemeralcontainers"
    with pytest.raises(RefusedError, match=r"spec.ephemeralContainers\[debug\].env\[NVIDIA_VISIBLE_DEVICES\]"):
        installed.api.send("PATCH", path, debug, "application/strategic-merge-patch+json")


def test_g02_the_share_of_a_pod_is_never_changed(installed: Cluster, workspace: str) -> None:
    create(installed, workspace, GOOD, TENANT)
    for change, said in (
        ({"gpu-fraction": "0.6"}, "metadata.annotations[gpu-fraction]: '0.6'"),
        ({"gpu-fraction": None, "gpu-memory": "2000"}, "metadata.annotations[gpu-fraction]: ''"),
        ({"gpu-fraction": None}, "metadata.annotations[gpu-fraction]: ''"),
        ({"gpu-fraction-num-devices": "2"}, "metadata.annotations[gpu-fraction-num-devices]: '2'"),
        ({"gpu-fraction-container-name": "b"}, "metadata.annotations[gpu-fraction-container-name]: 'b'"),
        ({PREFIX: "v-abcdefg-shared-gpu"}, f"metadata.annotations[{PREFIX}]: 'v-abcdefg-shared-gpu'"),
    ):
        for user in (TENANT, BINDER, ""):
            refusal = patch(installed, workspace, "w", {"metadata": {"annotations": change}}, user)
            assert f"{said}: the share of a pod cannot be changed; delete the pod first" in refusal, refusal
    by_status = {"metadata": {"annotations": {"gpu-fraction": "0.6"}}}
    assert "delete the pod first" in patch(installed, workspace, "w", by_status, TENANT, "--subresource=status")
    create(installed, workspace, sharer({}, name="plain"), TENANT)
    refusal = patch(installed, workspace, "plain", {"metadata": {"annotations": {"gpu-fraction": "0.5"}}}, TENANT)
    assert "delete the pod first" in refusal
    assert "patched" in patch(installed, workspace, "w", {"metadata": {"annotations": {"seen": "yes"}}}, TENANT)
    create(installed, workspace, pod("other", containers=[container()]), TENANT)
    assert "patched" in patch(installed, workspace, "other", {"metadata": {"annotations": {"gpu-memory": "1"}}}, TENANT)


def owner_of(cluster: Cluster, where: str, name: str) -> Json:
    """A pod that waits, as the owner of what is written about it."""
    create(cluster, where, pod(name, containers=[container()], schedulerName="nobody"), TENANT)
    uid = cluster.api.get(f"/api/v1/namespaces/{where}/pods/{name}")["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}


def bind_request(owner: Json) -> Json:
    name = owner["name"]
    spec = {"podName": name, "podUID": owner["uid"], "selectedNode": "n", "selectedGPUGroups": ["g"]}
    kind = {"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest"}
    return kind | {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}


def bind(cluster: Cluster, where: str, name: str, user: str, plural: str = "", **metadata: Any) -> str:
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name} | metadata, "target": target}
    path = f"/api/v1/namespaces/{where}/{plural or f'pods/{name}/binding'}"
    raw = ("create", "--raw", path, "-f", "-", "--as", user)
    return cluster.kubectl(*raw, input=json.dumps(body), check=False)


def grant(cluster: Cluster, where: str, user: str, rule: Json) -> None:
    """A right in a namespace, or in the whole cluster."""
    scope = "" if where else "Cluster"
    group = "rbac.authorization.k8s.io"
    metadata = {"name": user} | ({"namespace": where} if where else {})
    role = {"apiVersion": f"{group}/v1", "kind": f"{scope}Role", "metadata": metadata, "rules": [rule]}
    subjects = [{"apiGroup": group, "kind": "User", "name": user}]
    bound = role | {"kind": f"{scope}RoleBinding", "subjects": subjects}
    bound["roleRef"] = {"apiGroup": group, "kind": f"{scope}Role", "name": user}
    del bound["rules"]
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all([role, bound]))


def marked(name: str, more: Json | None = None) -> Json:
    body = pod(name, containers=[container()])
    return body | {"metadata": (more or {}).get("metadata", {}) | {"name": name}}


def config_map(name: str) -> Json:
    data = {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def create(cluster: Cluster, where: str, body: Json, user: str = "", *, dry: bool = False) -> str:
    named = body | {"metadata": body["metadata"] | {"namespace": where}}
    options = [*acting_as(user), *(["--dry-run=server"] if dry else [])]
    return cluster.kubectl("create", "-f", "-", *options, input=json.dumps(named), check=False)


def patch(
    cluster: Cluster, where: str, name: str, change: Json, user: str = "", *options: str, kind: str = "pod"
) -> str:
    what = ("patch", kind, name, "-n", where, "--type=merge", "-p", json.dumps(change))
    return cluster.kubectl(*what, *options, *acting_as(user), check=False)


def delete(cluster: Cluster, where: str, kind: str, name: str, *options: str, user: str) -> str:
    return cluster.kubectl("delete", kind, name, "-n", where, *options, *acting_as(user), check=False)


def acting_as(user: str) -> list[str]:
    return ["--as", user] if user else []


def namespace(cluster: Cluster, name: str) -> None:
    cluster.kubectl("create", "namespace", name, check=False)
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    until(lambda: cluster.api.exists(account), "the default account of the namespace")
