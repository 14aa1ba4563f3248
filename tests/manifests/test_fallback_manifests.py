"""What `make deploy-webhook` installs."""

from __future__ import annotations

import pytest

from apportion import manifests
from apportion.admission import static_or_dynamic
from apportion.admission.fallback import tiers
from apportion.apis import names

OBJECTS = {(entry["kind"], entry["metadata"]["name"]): entry for entry in manifests.load("fallback")}
CONFIGURATION = OBJECTS["MutatingWebhookConfiguration", names.FALLBACK_WEBHOOK_CONFIGURATION]
ROLES = [entry for (kind, _), entry in OBJECTS.items() if kind in ("Role", "ClusterRole")]


def test_f03_one_deployment_with_its_label_service_and_account() -> None:
    deployment = OBJECTS["Deployment", "gpu-webhook"]
    template = deployment["spec"]["template"]
    assert template["metadata"]["labels"]["app"] == "gpu-webhook"
    assert deployment["spec"]["replicas"] == 1
    assert template["spec"]["serviceAccountName"] == "gpu-webhook"
    assert OBJECTS["Service", "gpu-webhook"]["spec"]["selector"] == {"app": "gpu-webhook"}
    assert ("ServiceAccount", "gpu-webhook") in OBJECTS
    assert ("Namespace", "gpu-webhook") in OBJECTS


def test_f03_the_files_stand_in_the_order_of_their_application() -> None:
    assert manifests.files("fallback") == [
        "00-namespace.yaml",
        "00-network-policies.yaml",
        "01-access.yaml",
        "01-policies.yaml",
        "02-deployment.yaml",
        "03-service.yaml",
        "04-webhook-config.yaml",
    ]
    assert not any(entry["metadata"]["name"].startswith("gpu-") for entry in manifests.load())


def test_f07_both_deployments_are_configured_with_the_same_tiers() -> None:
    beside = {entry["metadata"]["name"]: entry for entry in manifests.load() if entry["kind"] == "Deployment"}
    for deployment in (OBJECTS["Deployment", "gpu-webhook"], beside["das-operator-webhook"]):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        written = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert tiers.parse(written["APPORTION_FALLBACK_TIERS"], "env") == static_or_dynamic.DEFAULT_TIERS


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role["kind"])
def test_r01_the_roles_have_no_wildcards_and_write_only_what_is_ours(
    role: dict[str, list[dict[str, list[str]]]],
) -> None:
    for rule in role["rules"]:
        assert "*" not in rule["apiGroups"] + rule["resources"] + rule["verbs"]
        if set(rule["verbs"]) & {"update", "patch", "delete"}:
            assert rule["resourceNames"]


@pytest.mark.parametrize("webhook", CONFIGURATION["webhooks"], ids=lambda entry: entry["name"])
def test_d02_every_entry_says_whom_it_concerns_and_what_an_outage_means(webhook: dict[str, object]) -> None:
    assert webhook["matchConditions"]
    assert webhook["failurePolicy"] == ("Ignore" if webhook["name"] == "templates.fallback.apportion.io" else "Fail")
    assert webhook["sideEffects"] in ("None", "NoneOnDryRun")
    assert webhook["reinvocationPolicy"] == "Never"
    assert isinstance(webhook["timeoutSeconds"], int)
    assert webhook["timeoutSeconds"] <= 10
