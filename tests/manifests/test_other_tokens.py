"""T04: what the tokens of webhooks and scheduler change of objects that are not their own."""

from __future__ import annotations

import pytest

from tests.environments.api import Api
from tests.manifests.installed_tokens import (
    ADMISSION,
    CORE,
    DENIED,
    HERE,
    JSON_PATCH,
    MERGE,
    NAMESPACE,
    STRATEGIC,
    InstalledTokens,
    Json,
    answer,
    status,
)
from tests.manifests.test_operator_token import webhook_changes

WEBHOOKS = {
    "das-operator-webhook": (NAMESPACE, "das-operator-webhook-certs", "das-mutating-webhook-configuration"),
    "gpu-webhook": ("gpu-webhook", "gpu-webhook-certs", "gpu-allocation-webhook"),
}


@pytest.mark.parametrize("account", WEBHOOKS)
def test_t04_a_webhook_changes_only_the_bundle_of_its_configuration(tokens: InstalledTokens, account: str) -> None:
    namespace, _, configuration = WEBHOOKS[account]
    webhook = tokens.token(account, namespace=namespace)
    path = f"{ADMISSION}/mutatingwebhookconfigurations"
    own = f"{path}/{configuration}"
    current = tokens.api.get(own)
    for patch in webhook_changes(current):
        assert status(webhook, "PATCH", own, patch, MERGE) == DENIED, patch
    assert status(webhook, "POST", path, {"metadata": {"name": "evil"}, "webhooks": []}) == DENIED
    assert status(webhook, "DELETE", own) == DENIED
    bundle = {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": tokens.ca_bundle}
    for change in (bundle, {"op": "remove", "path": bundle["path"]}):
        assert status(webhook, "PATCH", own, [change], JSON_PATCH) == 200


@pytest.mark.parametrize("account", WEBHOOKS)
def test_t04_a_webhook_creates_only_its_own_secret_and_no_token(tokens: InstalledTokens, account: str) -> None:
    namespace, secret, _ = WEBHOOKS[account]
    webhook = tokens.token(account, namespace=namespace)
    path = f"{CORE}/namespaces/{namespace}/secrets"
    token = {"type": "kubernetes.io/service-account-token"}
    annotations = {"kubernetes.io/service-account.name": "default"}
    for body in (
        {"metadata": {"name": "evil"}},
        {"metadata": {"name": secret, "annotations": annotations}, **token},
        {"metadata": {"generateName": secret}},
    ):
        assert status(webhook, "POST", path, body) == DENIED, body
    assert status(webhook, "POST", path, {"metadata": {"name": secret}, "type": "Opaque"}) == 200
    tokens.api.delete(f"{path}/{secret}")
    assert status(webhook, "POST", path.replace("secrets", "configmaps"), {"metadata": {"name": "evil"}}) == DENIED
    assert status(webhook, "GET", f"{CORE}/namespaces/kube-system/secrets") == DENIED


def test_t04_the_scheduler_changes_only_the_outcome_in_the_status_of_a_pod(scheduler: Api) -> None:
    own = f"{CORE}/namespaces/default/pods/user-{HERE}/status"
    ready = {"type": "Ready", "status": "True"}
    for body in (
        {"status": {"phase": "Succeeded"}},
        {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}},
        {"status": {"conditions": [ready]}},
        {"metadata": {"labels": {"app": "evil"}}},
        {"metadata": {"annotations": {"evil": "yes"}}},
    ):
        assert status(scheduler, "PATCH", own, body, STRATEGIC) == DENIED, body
    outcome = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}
    for body in ({"status": {"conditions": [outcome]}}, {"status": {"nominatedNodeName": HERE}}):
        code, text = answer(scheduler, "PATCH", own, body, STRATEGIC)
        assert code == 200, text


def test_t04_the_scheduler_takes_no_volume_from_its_claim(tokens: InstalledTokens, scheduler: Api) -> None:
    volumes, claims = f"{CORE}/persistentvolumes", f"{CORE}/namespaces/default/persistentvolumeclaims"
    tokens.api.create(claims, claim("c"))
    for name, reference in (("free", None), ("bound", {"namespace": "default", "name": "c"})):
        tokens.api.create(volumes, volume(name, reference))
    stolen = {"spec": {"claimRef": {"namespace": "evil", "name": "c"}}}
    for path, body in (
        (f"{volumes}/bound", stolen),
        (f"{volumes}/bound", {"spec": {"claimRef": None}}),
        (f"{volumes}/free", {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}),
        (f"{volumes}/free", {"metadata": {"labels": {"evil": "yes"}}}),
        (f"{claims}/c", {"metadata": {"annotations": {"evil": "yes"}}}),
        (f"{claims}/c", {"metadata": {"finalizers": None}}),
    ):
        assert status(scheduler, "PATCH", path, body, MERGE) == DENIED, body
    node = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": HERE}}}
    assert status(scheduler, "PATCH", f"{claims}/c", node, MERGE) == 200
    assert status(scheduler, "PATCH", f"{volumes}/free", stolen, MERGE) == 200
    for path in (f"{volumes}/free", f"{volumes}/bound", f"{claims}/c"):
        tokens.api.merge(path, {"metadata": {"finalizers": None}})
        tokens.api.delete(path)


def test_t04_the_scheduler_reads_no_secrets_and_creates_no_other_lease_or_config_map(
    tokens: InstalledTokens, scheduler: Api
) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    assert status(scheduler, "GET", f"{CORE}/namespaces/{NAMESPACE}/secrets") == DENIED
    assert status(scheduler, "POST", leases, {"metadata": {"name": "evil"}}) == DENIED
    maps = f"{CORE}/namespaces/{NAMESPACE}/configmaps"
    assert status(scheduler, "POST", maps, {"metadata": {"name": "evil"}}) == DENIED
    assert status(scheduler, "POST", maps, {"metadata": {"generateName": "das-scheduler-places"}}) == DENIED
    assert status(scheduler, "GET", maps) == DENIED
    assert status(scheduler, "POST", maps, {"metadata": {"name": "das-scheduler-places"}}) == 200
    assert status(scheduler, "PATCH", f"{maps}/das-scheduler-places", {"data": {"a": "b"}}, MERGE) == 200
    assert status(scheduler, "DELETE", f"{maps}/das-scheduler-places") == DENIED
    tokens.api.delete(f"{maps}/das-scheduler-places")
    assert status(scheduler, "DELETE", f"{CORE}/namespaces/default/pods/user-{HERE}") == DENIED


def volume(name: str, reference: Json | None) -> Json:
    spec: Json = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/nothing"}}
    spec["persistentVolumeReclaimPolicy"] = "Retain"
    return {"metadata": {"name": name}, "spec": spec | ({"claimRef": reference} if reference else {})}


def claim(name: str) -> Json:
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": "none"}
    return {"metadata": {"name": name}, "spec": spec}
