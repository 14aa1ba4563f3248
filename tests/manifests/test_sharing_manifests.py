"""What `apportion up --sharing` installs after the base: G01, G08, R01, T06."""

from __future__ import annotations

from typing import Any

import pytest

from apportion import manifests
from apportion.apis import names
from apportion.apis.installation import Installation

Json = dict[str, Any]
OBJECTS = manifests.load("sharing")
DEPLOYMENTS = {entry["metadata"]["name"]: entry for entry in OBJECTS if entry["kind"] == "Deployment"}
ROLES = [entry for entry in OBJECTS if entry["kind"] in ("Role", "ClusterRole")]
BASE = manifests.load()


def of(kind: str) -> dict[tuple[str, str], Json]:
    return {
        (entry["metadata"].get("namespace", ""), entry["metadata"]["name"]): entry
        for entry in OBJECTS
        if entry["kind"] == kind
    }


def container_of(deployment: Json) -> Json:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    found: Json = container
    return found


def test_g01_the_last_object_turns_sharing_on() -> None:
    last = OBJECTS[-1]
    assert (last["kind"], last["metadata"]["name"]) == ("Config", names.KAI_CONFIG_OBJECT)
    assert last["spec"] == {"admission": {"gpuSharing": True}}
    assert "Config" not in {entry["kind"] for entry in BASE}


def test_g08_binder_and_scheduler_have_the_names_and_labels_that_people_look_for() -> None:
    apps = {"binder": names.BINDER_APP, "kai-scheduler": names.KAI_SCHEDULER_APP}
    assert set(DEPLOYMENTS) == set(apps)
    for name, app in apps.items():
        deployment = DEPLOYMENTS[name]
        assert deployment["metadata"]["namespace"] == names.KAI_NAMESPACE
        assert deployment["metadata"]["labels"][names.COMPONENT_LABEL] == app
        assert deployment["spec"]["selector"]["matchLabels"] == {names.COMPONENT_LABEL: app}
        assert deployment["spec"]["template"]["metadata"]["labels"][names.COMPONENT_LABEL] == app
    assert DEPLOYMENTS["binder"]["spec"]["replicas"] == 2
    assert DEPLOYMENTS["kai-scheduler"]["spec"]["replicas"] == 1


def test_r02_namespaces_come_first_and_every_object_is_there_once() -> None:
    kinds = [entry["kind"] for entry in OBJECTS]
    assert kinds[:2] == ["Namespace", "Namespace"]
    assert set(of("Namespace")) == {("", names.KAI_NAMESPACE), ("", names.RESERVATION_NAMESPACE)}
    identities = [
        (entry["kind"], entry["metadata"].get("namespace"), entry["metadata"]["name"]) for entry in [*BASE, *OBJECTS]
    ]
    assert len(set(identities)) == len(identities)
    assert max(at for at, kind in enumerate(kinds) if kind.endswith("PolicyBinding")) < kinds.index("Deployment")


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_r02_the_planes_find_the_objects_of_the_installation(name: str) -> None:
    container = container_of(DEPLOYMENTS[name])
    assert container["image"] == names.IMAGE
    assert container["command"] == ["apportion"]
    fields = {"metadata.namespace": names.KAI_NAMESPACE}
    environment = {
        entry["name"]: entry.get("value") or fields.get(entry["valueFrom"]["fieldRef"]["fieldPath"], "")
        for entry in container["env"]
    }
    assert Installation.from_environment(environment) == Installation()
    assert {"APPORTION_NAMESPACE", "APPORTION_SHARING_NAMESPACE", "APPORTION_LOG_LEVEL"} <= set(environment)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert container["args"] == [
        {"binder": "binder", "kai-scheduler": "scheduler"}[name],
        f"--probes=$(POD_IP):{ports['probes']}",
    ]


def test_g05_reservation_pods_have_the_image_of_the_binder() -> None:
    container = container_of(DEPLOYMENTS["binder"])
    written = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert written["APPORTION_IMAGE"] == container["image"]


def test_r02_both_schedulers_are_the_same_program_with_the_same_arguments() -> None:
    base = next(
        entry for entry in BASE if entry["kind"] == "Deployment" and entry["metadata"]["name"] == names.DAS_SCHEDULER
    )
    ours, theirs = container_of(DEPLOYMENTS["kai-scheduler"]), container_of(base)
    assert ours | {"env": []} == theirs | {"env": []}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: f"{role['kind']}-{role['metadata'].get('namespace', '')}")
def test_r01_the_roles_have_no_wildcards(role: Json) -> None:
    for rule in role["rules"]:
        assert not any("*" in entry for entry in rule["apiGroups"] + rule["resources"] + rule["verbs"])
        assert not {"deletecollection", "escalate", "bind", "impersonate"} & set(rule["verbs"])
        assert "secrets" not in rule["resources"]
        if "delete" in rule["verbs"] and rule["resources"] != ["configmaps"]:
            assert (role["kind"], role["metadata"]["namespace"]) == ("Role", names.RESERVATION_NAMESPACE)


def test_r01_the_second_scheduler_has_every_role_of_the_first_and_no_other() -> None:
    def bound(objects: list[Json], account: tuple[str, str]) -> set[tuple[str, str, str]]:
        return {
            (entry["metadata"].get("namespace", ""), entry["roleRef"]["kind"], entry["roleRef"]["name"])
            for entry in objects
            if entry["kind"].endswith("RoleBinding")
            and account in [(subject["namespace"], subject["name"]) for subject in entry["subjects"]]
        }

    first = bound(BASE, (names.DAS_NAMESPACE, names.DAS_SCHEDULER))
    assert len(first) == 3
    assert bound(OBJECTS, (names.KAI_NAMESPACE, "kai-scheduler")) == first


def test_t04_every_policy_of_the_scheduler_binds_both_accounts() -> None:
    policies = [
        entry
        for entry in BASE
        if entry["kind"] == "ValidatingAdmissionPolicy" and entry["metadata"]["name"].startswith("das-scheduler-")
    ]
    assert policies
    for entry in policies:
        (condition,) = entry["spec"]["matchConditions"]
        for account in ("das-operator:das-scheduler", "kai-scheduler:kai-scheduler"):
            assert f"'system:serviceaccount:{account}'" in condition["expression"]


def test_t06_both_namespaces_are_closed_and_the_binder_survives_a_drain() -> None:
    policies = of("NetworkPolicy")
    for namespace in (names.KAI_NAMESPACE, names.RESERVATION_NAMESPACE):
        closed = policies[namespace, f"{namespace}-deny-all"]["spec"]
        assert closed == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
        (rule,) = policies[namespace, f"{namespace}-allow-egress"]["spec"]["egress"]
        assert [port["port"] for port in rule["ports"]] == [443, 6443, 53, 53]
    assert len(policies) == 4
    ((_, budget),) = of("PodDisruptionBudget").items()
    assert budget["spec"]["minAvailable"] == 1
    assert budget["spec"]["selector"]["matchLabels"] == {names.COMPONENT_LABEL: names.BINDER_APP}
    levels = {name: entry["metadata"]["labels"] for (_, name), entry in of("Namespace").items()}
    assert levels[names.KAI_NAMESPACE]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert levels[names.RESERVATION_NAMESPACE]["pod-security.kubernetes.io/enforce"] == "baseline"
