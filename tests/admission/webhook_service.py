"""The webhook of the shipped manifests behind its Service, until a block ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from apportion.apis import names
from tests.admission.accounts import plane
from tests.builders.pods import container, pod
from tests.environments.cluster import Cluster
from tests.environments.control_plane import ControlPlane
from tests.environments.sandbox_init import SERVICE_ADDRESS
from tests.environments.waiting import until

CONFIGURATION = (
    f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{names.SLICE_WEBHOOK_CONFIGURATION}"
)
GUARD = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{names.GUARD_WEBHOOK_CONFIGURATION}"
BY_HAND = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "metadata": {"name": "by-hand", "labels": {"kubernetes.io/service-name": names.WEBHOOK_SERVICE}},
    "addressType": "IPv4",
    "endpoints": [{"addresses": [SERVICE_ADDRESS], "conditions": {"ready": True}}],
    "ports": [{"name": "https", "port": 8443, "protocol": "TCP"}],
}
SHARING_ON = {
    "apiVersion": "kai.scheduler/v1",
    "kind": "Config",
    "metadata": {"name": names.KAI_CONFIG_OBJECT},
    "spec": {"admission": {"gpuSharing": True}},
}


def switch_sharing(cluster: Cluster, **settings: object) -> None:
    """The Config with these admission settings; on, if there are none."""
    body = SHARING_ON | {"spec": {"admission": settings or {"gpuSharing": True}}}
    cluster.kubectl("wait", "--for=condition=Established", "crd/configs.kai.scheduler")
    cluster.kubectl("apply", "-f", "-", input=json.dumps(body))


@contextmanager
def running(cluster: Cluster, folder: Path) -> Iterator[None]:
    endpoints = f"/apis/discovery.k8s.io/v1/namespaces/{names.DAS_NAMESPACE}/endpointslices"
    if isinstance(cluster, ControlPlane):
        cluster.api.create(endpoints, BY_HAND)
    addresses = [f"--listen={SERVICE_ADDRESS}:8443", f"--probes={SERVICE_ADDRESS}:9402"]
    with plane(cluster, "das-operator-webhook", ["webhook", *addresses], folder):
        until(lambda: bundles(cluster) and all(bundles(cluster)), "the bundle is published")
        until(lambda: answers(cluster), "the webhook answers")
        yield
    cluster.api.delete(f"{endpoints}/by-hand")


def answers(cluster: Cluster) -> bool:
    body = json.dumps(pod("story", containers=[container(limits={"nvidia.com/mig-1g.5gb": "2"})]))
    said = cluster.kubectl("create", "-f", "-", "--dry-run=server", input=body, check=False)
    return "created (server dry run)" in said


def bundles(cluster: Cluster) -> list[str | None]:
    return [
        entry["clientConfig"].get("caBundle")
        for path in (CONFIGURATION, GUARD)
        for entry in cluster.api.get(path)["webhooks"]
    ]
