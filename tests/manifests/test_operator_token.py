"""T04: the token of the operator makes and changes no workload and no webhook but the shipped ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.environments.api import Api
from tests.manifests.installed_tokens import (
    ADMISSION,
    APPLY,
    APPS,
    CORE,
    DENIED,
    JSON_PATCH,
    MERGE,
    NAMESPACE,
    InstalledTokens,
    Json,
    answer,
    installation,
    status,
)

Change = Callable[[Json], object]
MUTATING = f"{ADMISSION}/mutatingwebhookconfigurations"
VALIDATING = f"{ADMISSION}/validatingwebhookconfigurations"
POLICIES = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies"
WORKLOADS = {
    f"{APPS}/{entry['kind'].lower()}s": entry
    for entry in installation("Deployment", "DaemonSet")
    if entry["metadata"]["name"] in ("das-scheduler", "das-daemonset")
}


@pytest.fixture
def operator(tokens: InstalledTokens) -> Api:
    return tokens.token("das-operator")


def pod(workload: Json) -> Json:
    found: Json = workload["spec"]["template"]["spec"]
    return found


def container(workload: Json) -> Json:
    found: Json = pod(workload)["containers"][0]
    return found


HOST = {"name": "host", "hostPath": {"path": "/"}}
EVIL = {"name": "evil", "image": "example.com/evil"}
CHANGES: dict[str, Change] = {
    "image": lambda entry: container(entry).update(image="example.com/evil"),
    "command": lambda entry: container(entry).update(command=["sh"]),
    "arguments": lambda entry: container(entry)["args"].append("--evil"),
    "privileged": lambda entry: container(entry).update(securityContext={"privileged": True}),
    "capability": lambda entry: container(entry)["securityContext"].update(capabilities={"add": ["SYS_ADMIN"]}),
    "host path": lambda entry: pod(entry)["volumes"].append(HOST),
    "mount": lambda entry: container(entry)["volumeMounts"].append(
        {"name": pod(entry)["volumes"][0]["name"], "mountPath": "/evil"}
    ),
    "account": lambda entry: pod(entry).update(serviceAccountName="default", serviceAccount="default"),
    "container": lambda entry: pod(entry)["containers"].append(EVIL),
    "init container": lambda entry: pod(entry).update(initContainers=[EVIL]),
    "host": lambda entry: pod(entry).update(hostIPC=True),
    "security context": lambda entry: pod(entry).update(securityContext={"runAsUser": 0}),
    "tolerations": lambda entry: pod(entry).update(tolerations=[{"key": "other", "operator": "Exists"}]),
    "node": lambda entry: pod(entry).update(nodeName="there"),
    "environment": lambda entry: container(entry)["env"].append({"name": "PYTHONPATH", "value": "/evil"}),
    "setting": lambda entry: container(entry)["env"][0].update(value="--evil"),
    "setting from elsewhere": lambda entry: container(entry)["env"].append(
        {"name": "APPORTION_DRIVER", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}
    ),
    "source of environment": lambda entry: container(entry).update(envFrom=[{"configMapRef": {"name": "evil"}}]),
    "hook": lambda entry: container(entry).update(lifecycle={"postStart": {"exec": {"command": ["sh"]}}}),
    "annotation": lambda entry: entry["spec"]["template"]["metadata"].update(annotations={"cdi.k8s.io/x": "y"}),
}


def changed(workload: Json, change: Change) -> Json:
    made = copy.deepcopy(workload)
    change(made)
    return made


def only_denied(api: Api, method: str, path: str, body: Any, kind: str = "application/json") -> None:
    code, text = answer(api, method, path, body, kind)
    assert code == DENIED, (method, path, body, text)


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.rpartition("/")[2])
def test_t04_the_operator_creates_no_workload_but_the_shipped_one(
    tokens: InstalledTokens, operator: Api, path: str
) -> None:
    shipped = WORKLOADS[path]
    own = f"{path}/{shipped['metadata']['name']}"
    tokens.api.delete(own)
    for change in CHANGES.values():
        only_denied(operator, "POST", path, changed(shipped, change))
    only_denied(operator, "POST", path, changed(shipped, lambda entry: entry["metadata"].update(name="evil")))
    only_denied(operator, "POST", path, changed(shipped, lambda entry: entry["metadata"].update(finalizers=["a/b"])))
    other = next(each for each in WORKLOADS if each != path)
    stray = shipped | {"kind": WORKLOADS[other]["kind"]}
    only_denied(operator, "POST", other, changed(stray, lambda entry: entry["spec"].pop("replicas", None)))

    selector = {"pool": "gpu"} if shipped["kind"] == "DaemonSet" else None
    code, text = answer(operator, "POST", path, changed(shipped, lambda entry: select(entry, selector)))
    assert code == 200, text


def select(workload: Json, selector: Json | None) -> None:
    container(workload)["env"][0]["value"] = "Debug"
    if selector is not None:
        pod(workload)["nodeSelector"] = selector
    if "replicas" in workload["spec"]:
        workload["spec"]["replicas"] = 0


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.rpartition("/")[2])
def test_t04_the_operator_changes_nothing_but_the_settings(tokens: InstalledTokens, operator: Api, path: str) -> None:
    name = WORKLOADS[path]["metadata"]["name"]
    own = f"{path}/{name}"
    current = tokens.api.get(own)
    for what, change in CHANGES.items():
        patch = {"spec": {"template": changed(current, change)["spec"]["template"]}}
        code, text = answer(operator, "PATCH", own, patch, MERGE)
        assert code == DENIED, (what, text)
    for body in ({"metadata": {"finalizers": ["example.com/evil"]}}, {"metadata": {"labels": {"evil": "yes"}}}):
        only_denied(operator, "PATCH", own, body, MERGE)
    env = [{"name": "APPORTION_LOG_LEVEL", "value": "Trace"}]
    containers = [{"name": container(current)["name"], "env": env}]
    body = {"apiVersion": "apps/v1", "kind": current["kind"], "metadata": {"name": name}}
    body["spec"] = {"template": {"spec": {"containers": containers}}}
    code, text = answer(operator, "PATCH", f"{own}?fieldManager=das-operator&force=true", body, APPLY)
    assert code == 200, text
    code, text = answer(operator, "PATCH", f"{own}?fieldManager=das-operator&force=true", body | {"spec": {}}, APPLY)
    assert code == 200, text


def test_t04_settings_can_be_changed_where_an_administrator_changed_the_image(
    tokens: InstalledTokens, operator: Api
) -> None:
    path = f"{APPS}/deployments/das-operator-webhook"
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "example.com/mirror"}]
    level = [{"op": "replace", "path": "/spec/template/spec/containers/0/env/0/value", "value": "Debug"}]
    before = container(tokens.api.get(path))["image"]
    assert status(tokens.api, "PATCH", path, image, JSON_PATCH) == 200
    assert status(operator, "PATCH", path, level, JSON_PATCH) == 200
    image[0]["value"] = before
    assert status(tokens.api, "PATCH", path, image, JSON_PATCH) == 200


def webhook_changes(current: Json) -> Iterator[Json]:
    entry = current["webhooks"][0]
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
    for change in (
        {"clientConfig": {"url": "https://example.com/evil", "caBundle": "Cg=="}},
        {"rules": [rule]},
        {"failurePolicy": "Ignore"},
        {"namespaceSelector": {}},
        {"matchConditions": []},
        {"matchConditions": [*entry["matchConditions"], {"name": "is-managed", "expression": "true"}]},
        {"matchConditions": [*entry["matchConditions"], {"name": "other", "expression": "false"}]},
    ):
        yield {"webhooks": [entry | change, *current["webhooks"][1:]]}
    yield {"webhooks": [*current["webhooks"], entry | {"name": "evil.apportion.io"}]}
    yield {"webhooks": current["webhooks"][1:]}
    yield {"metadata": {"labels": {"evil": "yes"}}}


@pytest.mark.parametrize("path", [MUTATING, VALIDATING])
def test_t04_the_operator_only_turns_the_shipped_webhooks_off_and_on(
    tokens: InstalledTokens, operator: Api, path: str
) -> None:
    (current,) = (entry for entry in tokens.api.items(path) if entry["metadata"]["name"].startswith("das-"))
    own = f"{path}/{current['metadata']['name']}"
    kinds = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": installation_kind(path)}
    evil = {"metadata": {"name": "evil"}, "webhooks": []}
    only_denied(operator, "POST", path, kinds | evil)
    only_denied(operator, "DELETE", own, None)
    for patch in webhook_changes(current):
        only_denied(operator, "PATCH", own, patch, MERGE)
    bundle = {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "Cg=="}
    only_denied(operator, "PATCH", own, [bundle], JSON_PATCH)
    off = {"matchConditions": [{"name": "is-managed", "expression": "false"}]}
    body = kinds | {"metadata": {"name": current["metadata"]["name"]}}
    turned = body | {"webhooks": [{"name": webhook["name"], **off} for webhook in current["webhooks"]]}
    target = f"{own}?fieldManager=das-operator&force=true"
    assert answer(operator, "PATCH", target, turned, APPLY)[0] == 200
    assert all(webhook["matchConditions"][-1:] == off["matchConditions"] for webhook in tokens.api.get(own)["webhooks"])
    assert answer(operator, "PATCH", target, body, APPLY)[0] == 200
    assert tokens.api.get(own)["webhooks"] == current["webhooks"]


def installation_kind(path: str) -> str:
    return "MutatingWebhookConfiguration" if path == MUTATING else "ValidatingWebhookConfiguration"


def test_t04_the_operator_cannot_write_its_own_parameters_policies_or_roles(
    tokens: InstalledTokens, operator: Api
) -> None:
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/das-operator"
    for path in (
        f"{CORE}/namespaces/{NAMESPACE}/podtemplates/das-scheduler",
        f"{ADMISSION}/validatingadmissionpolicies/das-operator-workloads",
        f"{ADMISSION}/validatingadmissionpolicybindings/das-operator-workloads",
        f"{ADMISSION}/validatingadmissionpolicies/das-agent-claims",
        rbac,
    ):
        assert tokens.api.exists(path)
        only_denied(operator, "PATCH", path, {"metadata": {"labels": {"evil": "yes"}}}, MERGE)
        only_denied(operator, "DELETE", path, None)


def test_t04_the_operator_creates_only_what_its_code_names(tokens: InstalledTokens, operator: Api) -> None:
    maps = f"{CORE}/namespaces/{NAMESPACE}/configmaps"
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    for path, name in ((maps, "das-operator-removed"), (leases, "das-operator")):
        only_denied(operator, "POST", path, {"metadata": {"name": "evil"}})
        assert status(operator, "POST", path, {"metadata": {"name": name}}) == 200
        tokens.api.delete(f"{path}/{name}")


def test_t04_t06_the_operator_creates_only_network_policies_that_open_nothing(
    tokens: InstalledTokens, operator: Api
) -> None:
    for policy in installation("NetworkPolicy"):
        name = policy["metadata"]["name"]
        only_denied(operator, "PATCH", f"{POLICIES}/{name}", {"metadata": {"labels": {"evil": "yes"}}}, MERGE)
        only_denied(operator, "DELETE", f"{POLICIES}/{name}", None)
        tokens.api.delete(f"{POLICIES}/{name}")
        for spec in ({"egress": [{}]}, {"ingress": [{}]}, {"egress": [{"ports": [{"port": 22}]}]}):
            only_denied(operator, "POST", POLICIES, policy | {"spec": {"podSelector": {}, **spec}})
        only_denied(operator, "POST", POLICIES, policy | {"metadata": {"name": "evil"}})
        assert answer(operator, "POST", POLICIES, policy)[0] == 200
