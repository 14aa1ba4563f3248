"""R01 on a real API server: the shipped roles are enough, and each is needed."""

from __future__ import annotations

import json

import pytest

from apportion.apis import names
from tests.environments.installed import AGENT, NAMESPACE, OPERATOR, SCHEDULER, WEBHOOK, Installed
from tests.environments.waiting import until
from tests.real.slice_pods import SlicePod

pytestmark = pytest.mark.real

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = {WEBHOOK: "das-operator-webhook", SCHEDULER: "das-scheduler", AGENT: "das-daemonset", OPERATOR: "das-operator"}
BINDINGS = {app: f"{RBAC}/clusterrolebindings/{role}" for app, role in ROLES.items()}
BINDINGS[OPERATOR] = f"{RBAC}/namespaces/{NAMESPACE}/rolebindings/das-operator"  # what it watches is all in there


def test_r01_no_request_of_any_plane_is_refused(real_planes: Installed, namespace: str) -> None:
    pod = SlicePod(real_planes, namespace, "p")
    pod.await_running()
    pod.delete()
    pod.await_gone()
    asking = {event["user"]["username"] for event in real_planes.cluster.requests_of_service_accounts()}
    for role in ROLES.values():
        assert f"system:serviceaccount:{NAMESPACE}:{role}" in asking
    assert real_planes.cluster.forbidden() == []


def test_r01_q02_q11_the_scheduler_reads_the_owners_of_its_pods_with_its_role(
    real_planes: Installed, namespace: str
) -> None:
    cluster, labels = real_planes.cluster, {"app": "owned"}
    pod = {"schedulerName": names.DAS_SCHEDULER, "containers": [{"name": "main", "image": "busybox"}]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "owned", "labels": {names.QUEUE_LABEL: "absent"}},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(deployment))
    messages = ("get", "pods", "-n", namespace, "-o", "jsonpath={.items[*].status.conditions[*].message}")
    until(lambda: "queue absent does not exist" in cluster.kubectl(*messages), "the queue of the Deployment counts")
    cluster.kubectl("delete", "deployment", "-n", namespace, "owned")
    assert cluster.forbidden() == []


@pytest.mark.parametrize("app", list(ROLES))
def test_r01_a_role_that_is_taken_away_is_missed(real_planes: Installed, namespace: str, app: str) -> None:
    cluster, path, account = real_planes.cluster, BINDINGS[app], f":{ROLES[app]} may not "
    binding = cluster.api.get(path)
    with cluster.expecting_refusals():
        cluster.api.delete(path)
        try:
            real_planes.kill(app)
            until(lambda: account in "".join(cluster.forbidden()), f"{app} is refused something", within=60)
        finally:
            kept = {
                key: binding["metadata"][key] for key in ("name", "namespace", "labels") if key in binding["metadata"]
            }
            cluster.kubectl("create", "-f", "-", input=json.dumps(binding | {"metadata": kept}))
        real_planes.await_ready(app)
    assert cluster.forbidden() == []
