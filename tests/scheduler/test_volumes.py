"""Pods with volumes go where these can be reached, and unbound ones learn the node before the pod does."""

from __future__ import annotations

from typing import Any

from apportion.apis import kinds, names
from apportion.apis.volumes import SELECTED_NODE
from tests.builders.pods import our_pod
from tests.scheduler.cluster import ApiCluster, scheduling, until

JSON = dict[str, Any]


async def storage_class(cluster: ApiCluster, name: str, provisioner: str, **fields: Any) -> None:
    body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    await cluster.client.apply(kinds.STORAGE_CLASSES, {**body, **fields}, field_manager="test")


async def claim(cluster: ApiCluster, name: str, kind: str, **fields: Any) -> None:
    spec = {
        "storageClassName": kind,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        **fields,
    }
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    await cluster.client.create(kinds.PERSISTENT_VOLUME_CLAIMS, body)


async def volume(cluster: ApiCluster, name: str, kind: str, node: str, **fields: Any) -> None:
    term = {"matchExpressions": [{"key": names.HOSTNAME_LABEL, "operator": "In", "values": [node]}]}
    spec = {
        "storageClassName": kind,
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        **fields,
    }
    await cluster.client.create(kinds.PERSISTENT_VOLUMES, {"metadata": {"name": name}, "spec": spec})
    await cluster.client.patch(kinds.PERSISTENT_VOLUMES, name, {"status": {"phase": "Available"}}, subresource="status")


async def pod_with(cluster: ApiCluster, name: str, claim: str) -> None:
    body = our_pod(name, slices={"1g.5gb": 1})
    body["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    await cluster.client.create(kinds.PODS, body)


async def clear(cluster: ApiCluster) -> None:
    for kind, namespace in ((kinds.PERSISTENT_VOLUME_CLAIMS, "default"), (kinds.PERSISTENT_VOLUMES, None)):
        for item in (await cluster.client.list(kind, namespace=namespace)).items:
            name = item["metadata"]["name"]
            await cluster.client.patch(kind, name, {"metadata": {"finalizers": None}}, namespace=namespace)
            await cluster.client.delete(kind, name, namespace=namespace)


async def test_s04_a_bound_volume_ties_its_pod_to_its_node(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    await cluster.node("n2")
    await volume(cluster, "pv", "local", "n2", claimRef={"namespace": "default", "name": "data"})
    await claim(cluster, "data", "local", volumeName="pv")
    async with scheduling(cluster):
        await pod_with(cluster, "a", "data")
        assert await cluster.bound("a") == {"a": "n2"}
    await clear(cluster)


async def test_s04_a_provisioner_is_told_the_node(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    await cluster.node("n2")
    topology = [{"matchLabelExpressions": [{"key": names.HOSTNAME_LABEL, "values": ["n2"]}]}]
    await storage_class(cluster, "made-on-demand", "example.com/disks", allowedTopologies=topology)
    await claim(cluster, "data", "made-on-demand")
    async with scheduling(cluster):
        await pod_with(cluster, "a", "data")
        assert await cluster.bound("a") == {"a": "n2"}
    made = await cluster.client.get(kinds.PERSISTENT_VOLUME_CLAIMS, "data", namespace="default")
    assert made["metadata"]["annotations"][SELECTED_NODE] == "n2"
    await clear(cluster)


async def test_s04_a_ready_made_volume_is_reserved(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    await cluster.node("n2")
    await storage_class(cluster, "local", "kubernetes.io/no-provisioner")
    await claim(cluster, "data", "local")
    async with scheduling(cluster):
        await pod_with(cluster, "a", "data")
        await cluster.waits("a")
        await volume(cluster, "pv", "local", "n2")
        assert await cluster.bound("a") == {"a": "n2"}
    reserved = await cluster.client.get(kinds.PERSISTENT_VOLUMES, "pv")
    wanted = await cluster.client.get(kinds.PERSISTENT_VOLUME_CLAIMS, "data", namespace="default")
    assert reserved["spec"]["claimRef"]["name"] == "data"
    assert reserved["spec"]["claimRef"]["uid"] == wanted["metadata"]["uid"]
    await clear(cluster)


async def test_s04_a_claim_that_is_not_there_is_waited_for(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    await storage_class(cluster, "on-demand", "example.com/disks")
    async with scheduling(cluster):
        await pod_with(cluster, "a", "data")
        await cluster.waits("a")
        await claim(cluster, "data", "on-demand")
        await cluster.bound("a")
    await clear(cluster)


async def test_s04_of_two_pods_for_one_volume_one_waits_and_holds_nothing(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    await storage_class(cluster, "local", "kubernetes.io/no-provisioner")
    await volume(cluster, "pv", "local", "n1")
    for name in ("a", "b"):
        await claim(cluster, f"data-{name}", "local")
        await pod_with(cluster, name, f"data-{name}")

    async def settled() -> tuple[str, str] | None:
        nodes = {name: (await cluster.get(name)).spec.node_name for name in ("a", "b")}
        placed = [name for name, node in nodes.items() if node]
        held = {each.spec.pod_ref.name for each in await cluster.claims() if not each.metadata.deleting}
        return (placed[0], nodes[placed[0]]) if len(placed) == 1 and held == set(placed) else None

    async with scheduling(cluster):
        placed, node = await until(settled)
        assert node == "n1"
        await cluster.waits("b" if placed == "a" else "a")
    await clear(cluster)
