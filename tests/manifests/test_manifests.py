"""The manifests as they ship: complete, least privilege, and consistent with names and types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from apportion import manifests
from apportion.apis import names
from apportion.apis.installation import Installation

ROOT = Path(__file__).parents[2]
OBJECTS = manifests.load()
POLICY = "ValidatingAdmissionPolicy"
ENVIRONMENT = "environment.gpu-guard.apportion.io"
ROLES = [entry for entry in OBJECTS if entry["kind"] in {"Role", "ClusterRole"}]
WORKLOADS = [entry for entry in OBJECTS if entry["kind"] in {"Deployment", "DaemonSet"}]
OTHERS = [entry for part in ("fallback", "sharing") for entry in manifests.load(part) if entry["kind"] == "Deployment"]


def named(kind: str, name: str) -> dict[str, Any]:
    return next(entry for entry in OBJECTS if entry["kind"] == kind and entry["metadata"]["name"] == name)


def label(entry: dict[str, Any]) -> str:
    return f"{entry['kind']}/{entry['metadata']['name']}"


def test_r02_loading_is_deterministic_and_gives_separate_copies() -> None:
    first, second = manifests.load(), manifests.load()
    assert first == second
    entries = named("MutatingWebhookConfiguration", names.SLICE_WEBHOOK_CONFIGURATION)["webhooks"]
    assert entries[0]["clientConfig"] == entries[1]["clientConfig"]
    assert entries[0]["clientConfig"] is not entries[1]["clientConfig"]


def test_r02_every_object_is_there_once_and_namespaces_and_kinds_come_first() -> None:
    identities = [(entry["kind"], entry["metadata"].get("namespace"), entry["metadata"]["name"]) for entry in OBJECTS]
    assert len(set(identities)) == len(identities)
    kinds = [entry["kind"] for entry in OBJECTS]
    assert kinds[0] == "Namespace"
    assert set(kinds[1:8]) == {"CustomResourceDefinition"}
    assert kinds.index("MutatingWebhookConfiguration") < kinds.index("Deployment")


def test_r02_the_kinds_are_those_of_the_types() -> None:
    check = [sys.executable, str(ROOT / "tools" / "generate" / "crds.py"), "--check"]
    assert subprocess.run(check, check=False, timeout=60).returncode == 0


@pytest.mark.parametrize("role", ROLES, ids=label)
def test_r01_roles_have_no_wildcards(role: dict[str, Any]) -> None:
    for rule in role.get("rules", ()):
        for part in ("apiGroups", "resources", "verbs"):
            assert not any("*" in entry for entry in rule[part]), rule
        assert "deletecollection" not in rule["verbs"]
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])


def test_r01_secrets_are_open_to_the_webhook_alone_and_by_name() -> None:
    reading = [
        (label(role), tuple(rule.get("resourceNames", ())))
        for role in ROLES
        for rule in role.get("rules", ())
        if "secrets" in rule["resources"] and set(rule["verbs"]) != {"create"}
    ]
    assert reading == [("Role/das-operator-webhook", (names.WEBHOOK_CERTIFICATE_SECRET,))]


def test_r01_every_plane_has_an_account_of_its_own_and_its_roles_are_bound_to_it() -> None:
    accounts = [entry["spec"]["template"]["spec"]["serviceAccountName"] for entry in WORKLOADS]
    assert len(set(accounts)) == len(accounts)
    for account in accounts:
        assert named("ServiceAccount", account)["metadata"]["namespace"] == names.DAS_NAMESPACE
    for binding in OBJECTS:
        if binding["kind"] in {"RoleBinding", "ClusterRoleBinding"}:
            assert named(binding["roleRef"]["kind"], binding["roleRef"]["name"])
            (subject,) = binding["subjects"]
            assert binding["roleRef"]["name"] in (subject["name"], f"{subject['name']}-owners")
            assert subject["name"] in accounts


def test_r01_only_the_agent_is_privileged_or_sees_the_host() -> None:
    for workload in WORKLOADS:
        pod = workload["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        privileged = bool(container["securityContext"].get("privileged"))
        host = any("hostPath" in volume for volume in pod["volumes"]) or bool(pod.get("hostPID"))
        agent = workload["metadata"]["name"] == "das-daemonset"
        assert (privileged, host) == (agent, agent)
        assert not pod.get("hostNetwork")
        if not agent:
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False


@pytest.mark.parametrize("workload", WORKLOADS, ids=label)
def test_r02_r03_planes_run_our_image_are_probed_and_say_what_they_need(workload: dict[str, Any]) -> None:
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == names.IMAGE
    assert container["command"] == ["apportion"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "probes"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "probes"}
    assert any(argument.endswith(f"$(POD_IP):{ports['probes']}") for argument in container["args"])
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])
    selector = workload["spec"]["selector"]["matchLabels"].items()
    assert selector <= workload["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("workload", WORKLOADS, ids=label)
def test_r02_planes_take_the_namespace_of_the_installation_from_their_pod(workload: dict[str, Any]) -> None:
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    assert Installation.from_environment(in_namespace("gpus", container)) == Installation(namespace="gpus")
    assert not any(names.DAS_NAMESPACE in argument for argument in container["args"])


def test_r02_the_fallback_webhook_takes_its_own_namespace_from_its_pod() -> None:
    (workload,) = (entry for entry in manifests.load("fallback") if entry["kind"] == "Deployment")
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    assert Installation.from_environment(in_namespace("gpus", container)) == Installation(fallback_namespace="gpus")
    assert "--namespace=$(APPORTION_FALLBACK_NAMESPACE)" in container["args"]


def in_namespace(namespace: str, container: dict[str, Any]) -> dict[str, str]:
    """The environment of the container in a pod of this namespace, as far as it depends on it."""
    by_field = {"metadata.namespace": namespace}
    fields = {
        entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in container["env"] if "valueFrom" in entry
    }
    return {name: by_field[field] for name, field in fields.items() if field in by_field}


def test_m05_s12_names_and_labels_are_those_that_people_look_for() -> None:
    assert {label(entry) for entry in WORKLOADS} == {
        "Deployment/das-operator",
        "Deployment/das-operator-webhook",
        "Deployment/das-scheduler",
        "DaemonSet/das-daemonset",
    }
    for kind, name, app in (
        ("Deployment", "das-operator-webhook", names.WEBHOOK_APP),
        ("DaemonSet", "das-daemonset", names.AGENT_APP),
    ):
        assert named(kind, name)["spec"]["template"]["metadata"]["labels"][names.APP_LABEL] == app
    pod = named("DaemonSet", "das-daemonset")["spec"]["template"]["spec"]
    (required,) = pod["affinity"]["nodeAffinity"].values()
    rules = [rule for term in required["nodeSelectorTerms"] for rule in term["matchExpressions"]]
    assert [rule["key"] for rule in rules] == [names.MIG_CAPABLE_LABEL, names.MANAGED_LABEL]
    assert all(rule["values"] == ["true"] for rule in rules)


def test_d02_the_configuration_calls_our_service_and_fails_closed() -> None:
    service = named("Service", names.WEBHOOK_SERVICE)
    (port,) = service["spec"]["ports"]
    for entry in named("MutatingWebhookConfiguration", names.SLICE_WEBHOOK_CONFIGURATION)["webhooks"]:
        alone = entry["name"] == ENVIRONMENT
        assert entry["clientConfig"]["service"] == {
            "name": names.WEBHOOK_SERVICE,
            "namespace": names.DAS_NAMESPACE,
            "path": "/mutate-environment" if alone else "/mutate-slices",
            "port": port["port"],
        }
        assert "caBundle" not in entry["clientConfig"]
        assert entry["failurePolicy"] == ("Ignore" if alone else "Fail")
        assert entry["sideEffects"] == ("None" if alone else "NoneOnDryRun")
        assert entry["matchConditions"]


def test_t05_only_namespaces_that_ship_and_kube_system_are_exempt_by_name() -> None:
    sharing = {entry["metadata"]["name"] for entry in manifests.load("sharing") if entry["kind"] == "Namespace"}
    shipped = {entry["metadata"]["name"] for entry in OBJECTS if entry["kind"] == "Namespace"}
    selectors = [
        entry["namespaceSelector"]
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        for each in OBJECTS
        if each["kind"] == kind
        for entry in each["webhooks"]
    ]
    policies = {entry["metadata"]["name"]: entry["spec"] for entry in OBJECTS if entry["kind"] == POLICY}
    guarding = [policies[f"{kind}.gpu-guard.apportion.io"]["matchConstraints"] for kind in ("pods", "jobs")]
    for selector in [*selectors, *(each["namespaceSelector"] for each in guarding)]:
        by_name, *others = selector["matchExpressions"]
        assert set(by_name["values"]) == {*shipped, *sharing, names.KUBE_SYSTEM_NAMESPACE}
        assert set(by_name["values"]) == set(names.NAMESPACES_WITHOUT_ADMISSION)
        assert others in ([], [{"key": names.GPU_GUARD_LABEL, "operator": "NotIn", "values": [names.GPU_GUARD_EXEMPT]}])
    # Names that exist only after sharing is installed are kept for it.
    (condition,) = policies["namespaces.gpu-guard.apportion.io"]["matchConditions"]
    assert all(f"'{name}'" in condition["expression"] for name in (*sharing, names.GPU_GUARD_LABEL))


def test_t05_every_policy_fails_closed_and_is_bound() -> None:
    bound = {entry["spec"]["policyName"]: entry["spec"] for entry in OBJECTS if entry["kind"] == f"{POLICY}Binding"}
    for entry in OBJECTS:
        if entry["kind"] == POLICY:
            assert entry["spec"]["failurePolicy"] == "Fail"
            assert "Deny" in bound[entry["metadata"]["name"]]["validationActions"]


def test_s12_every_example_is_valid_yaml_with_names_of_nvidias_plugin() -> None:
    files = sorted((ROOT / "examples" / "slices").glob("*.yaml"))
    assert files
    for file in files:
        text = file.read_text()
        assert names.NVIDIA_MIG_PREFIX in text
        assert names.SLICE_PREFIX not in text
        assert all(document["kind"] and document["metadata"]["name"] for document in yaml.safe_load_all(text))


def test_t04_the_parameters_of_the_operators_policies_are_those_of_the_workloads() -> None:
    check = [sys.executable, str(ROOT / "tools" / "generate" / "workload_parameters.py"), "--check"]
    assert subprocess.run(check, check=False, timeout=60).returncode == 0


@pytest.mark.parametrize("part", ["", "fallback", "sharing"])
def test_t04_policies_deny_are_bound_and_exist_before_the_workloads(part: str) -> None:
    objects = manifests.load(part)
    policies = {entry["metadata"]["name"]: entry for entry in objects if entry["kind"] == "ValidatingAdmissionPolicy"}
    bindings = [entry for entry in objects if entry["kind"] == "ValidatingAdmissionPolicyBinding"]
    ours = [entry for entry in bindings if entry["spec"]["policyName"] in policies]
    assert {entry["spec"]["policyName"] for entry in ours} == set(policies)
    assert all(entry["spec"]["validationActions"] == ["Deny"] for entry in ours)
    for name, policy in policies.items():
        assert policy["spec"]["failurePolicy"] == "Fail"
        if not name.endswith(".gpu-guard.apportion.io"):  # those judge objects of users, not rights of a token
            assert all(rule["reason"] == "Forbidden" for rule in policy["spec"]["validations"])


def test_t04_no_agent_or_operator_starts_before_its_policies() -> None:
    kinds = [(entry["kind"], entry["metadata"]["name"]) for entry in OBJECTS]
    for workload, prefix in (
        (("DaemonSet", "das-daemonset"), "das-agent-"),
        (("Deployment", "das-scheduler"), "das-scheduler-"),
        (("Deployment", "das-operator-webhook"), "das-operator-webhook-"),
        (("Deployment", "das-operator"), "das-operator-"),
    ):
        bound = [at for at, (kind, name) in enumerate(kinds) if kind.endswith("Binding") and name.startswith(prefix)]
        assert bound, prefix
        policies = [at for at in bound if kinds[at][0] == "ValidatingAdmissionPolicyBinding"]
        assert policies
        assert max(policies) < kinds.index(workload)


def test_t06_network_policies_have_the_names_and_ports_that_people_look_for() -> None:
    found = {entry["metadata"]["name"]: entry["spec"] for entry in OBJECTS if entry["kind"] == "NetworkPolicy"}
    assert set(found) == {
        "das-deny-all",
        "das-allow-egress-kube-apiserver",
        "das-allow-egress-cluster-dns",
        "das-allow-ingress-webhook",
    }
    closed = found["das-deny-all"]
    assert closed == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert ports(found["das-allow-egress-kube-apiserver"]["egress"]) == [443, 6443]
    assert ports(found["das-allow-egress-cluster-dns"]["egress"]) == [53, 53]
    webhook = found["das-allow-ingress-webhook"]
    assert ports(webhook["ingress"]) == [8443]
    labels = named("Deployment", "das-operator-webhook")["spec"]["template"]["metadata"]["labels"]
    assert webhook["podSelector"]["matchLabels"].items() <= labels.items()


def ports(rules: list[dict[str, Any]]) -> list[int]:
    assert all(set(rule) == {"ports"} for rule in rules)  # open to all peers
    return [entry["port"] for rule in rules for entry in rule["ports"]]


@pytest.mark.parametrize("name", ["das-operator", "das-operator-webhook"])
def test_t06_webhook_and_operator_survive_a_drain(name: str) -> None:
    deployment, budget = named("Deployment", name), named("PodDisruptionBudget", name)
    assert deployment["spec"]["replicas"] == 2
    assert budget["spec"]["minAvailable"] == 1
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
    others = [each for each in WORKLOADS if each is not deployment]
    for other in others:
        selector = budget["spec"]["selector"]["matchLabels"].items()
        assert not selector <= other["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("workload", [*WORKLOADS, *OTHERS], ids=label)
def test_t06_planes_are_confined_as_far_as_they_touch_no_device(workload: dict[str, Any]) -> None:
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "memory" in container["resources"]["limits"]
    if workload["metadata"]["name"] == "das-daemonset":
        return
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
