"""The official Python client on the embedded cluster: list, watch, create, patch, bind, log, delete."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.environments.embedded import Embedded
from tests.environments.waiting import until

# Untyped: what it gives back has `None` in every place that a server always fills.
kubernetes: Any = pytest.importorskip("kubernetes")


@pytest.fixture
def api(embedded_cluster: Embedded) -> Iterator[Any]:
    settings = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(embedded_cluster.kubeconfig), client_configuration=settings)
    with kubernetes.client.ApiClient(settings) as client:
        yield client


def test_the_official_client_creates_binds_watches_and_deletes_a_pod(api: Any, namespace: str) -> None:
    core = kubernetes.client.CoreV1Api(api)
    seen: list[tuple[str, str]] = []
    watching = threading.Thread(target=_watch_pods, args=(core, namespace, seen))
    watching.start()
    made = core.create_namespaced_pod(namespace, _pod("bound"))
    assert made.status.phase == "Pending"
    until(lambda: ("ADDED", "bound") in seen, "the watch tells of the pod")
    (node,) = core.list_node().items
    _bind(core, namespace, "bound", node.metadata.name)
    with pytest.raises(kubernetes.client.ApiException) as refused:
        _bind(core, namespace, "bound", node.metadata.name)
    assert refused.value.status == 409
    until(lambda: core.read_namespaced_pod("bound", namespace).status.phase == "Running", "the pod runs")
    until(lambda: "hello" in core.read_namespaced_pod_log("bound", namespace), "its log")
    patched = core.patch_namespaced_pod("bound", namespace, {"metadata": {"labels": {"colour": "red"}}})
    assert patched.metadata.labels == {"colour": "red"}
    listed = core.list_namespaced_pod(namespace, label_selector="colour=red", limit=1)
    assert [pod.metadata.name for pod in listed.items] == ["bound"]
    core.delete_namespaced_pod("bound", namespace, grace_period_seconds=0)
    watching.join(timeout=30)
    assert seen[-1] == ("DELETED", "bound")
    with pytest.raises(kubernetes.client.ApiException) as gone:
        core.read_namespaced_pod("bound", namespace)
    assert gone.value.status == 404


def test_the_official_client_runs_a_deployment(api: Any, namespace: str) -> None:
    apps = kubernetes.client.AppsV1Api(api)
    kubernetes.utils.create_from_dict(api, _deployment("web"), namespace=namespace)
    until(lambda: apps.read_namespaced_deployment("web", namespace).status.ready_replicas == 1, "a replica is ready")
    apps.patch_namespaced_deployment_scale("web", namespace, {"spec": {"replicas": 2}})
    until(lambda: apps.read_namespaced_deployment("web", namespace).status.ready_replicas == 2, "two are ready")
    stale = apps.read_namespaced_deployment("web", namespace)
    stale.metadata.resource_version = "1"
    with pytest.raises(kubernetes.client.ApiException) as conflict:
        apps.replace_namespaced_deployment("web", namespace, stale)
    assert conflict.value.status == 409
    apps.delete_namespaced_deployment("web", namespace, propagation_policy="Foreground")
    core = kubernetes.client.CoreV1Api(api)
    until(lambda: not core.list_namespaced_pod(namespace).items, "its pods are gone")


def test_the_official_dynamic_client_finds_kinds_by_discovery(api: Any, namespace: str) -> None:
    dynamic = kubernetes.dynamic.DynamicClient(api)
    maps = dynamic.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "thing"}, "data": {"a": "1"}}
    maps.create(body=body, namespace=namespace)
    applied = body | {"data": {"a": "2"}}
    answer = maps.server_side_apply(
        body=applied, name="thing", namespace=namespace, field_manager="tester", force_conflicts=True
    )
    assert answer.data.a == "2"
    maps.delete(name="thing", namespace=namespace)
    assert all(item.metadata.name != "thing" for item in maps.get(namespace=namespace).items)


def _watch_pods(core: Any, namespace: str, seen: list[tuple[str, str]]) -> None:
    """Until the first pod goes."""
    watching = kubernetes.watch.Watch()
    for event in watching.stream(core.list_namespaced_pod, namespace, timeout_seconds=30):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            watching.stop()


def _bind(core: Any, namespace: str, name: str, node: str) -> None:
    target = kubernetes.client.V1ObjectReference(kind="Node", name=node)
    meta = kubernetes.client.V1ObjectMeta(name=name)
    # The answer is a Status, which this method of the client does not expect.
    body = kubernetes.client.V1Binding(metadata=meta, target=target)
    core.create_namespaced_pod_binding(name, namespace, body, _preload_content=False)


def _pod(name: str) -> Any:
    client = kubernetes.client
    container = client.V1Container(name="main", image="busybox:1.36", command=["sh", "-c", "echo hello; sleep 1000"])
    # No scheduler answers to this name: the test binds.
    spec = client.V1PodSpec(scheduler_name="nobody", containers=[container], termination_grace_period_seconds=1)
    return client.V1Pod(metadata=client.V1ObjectMeta(name=name), spec=spec)


def _deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "main", "image": "busybox:1.36", "command": ["sleep", "1000"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
            },
        },
    }
