"""Pods with volumes go where these can be reached, and unbound ones learn the node before the pod does."""

from __future__ import annotations

from typing import Any

from apportion.apis import kinds, names
from apportion.apis.volumes import SELECTED_NODE
from tests.scheduler.ground import Ground, pod_body, scheduling, until

JSON = dict[str, Any]


async def storage_class(ground: Ground, name: str, provisioner: str, **fields: Any) -> None:
    body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    await ground.client.apply(kinds.STORAGE_CLASSES, {**body, **fields}, field_manager="test")


async def claim(ground: Ground, name: str, kind: str, **fields: Any) -> None:
    spec = {
        "storageClassName": kind,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        **fields,
    }
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    await ground.client.create(kinds.PERSISTENT_VOLUME_CLAIMS, body)


async def volume(ground: Ground, name: str, kind: str, node: str, **fields: Any) -> None:
    term = {"matchExpressions": [{"key": names.HOSTNAME_LABEL, "operator": "In", "values": [node]}]}
    spec = {
        "storageClassName": kind,
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        **fields,
    }
    await ground.client.create(kinds.PERSISTENT_VOLUMES, {"metadata": {"name": name}, "spec": spec})
    await ground.client.patch(kinds.PERSISTENT_VOLUMES, name, {"status": {"phase": "Available"}}, subresource="status")


async def pod_with(ground: Ground, name: str, claim: str) -> None:
    body = pod_body(name, slices={"1g.5gb": 1})
    body["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    await ground.client.create(kinds.PODS, body)


async def clear(ground: Ground) -> None:
    for kind, namespace in ((kinds.PERSISTENT_VOLUME_CLAIMS, "default"), (kinds.PERSISTENT_VOLUMES, None)):
        for item in (await ground.client.list(kind, namespace=namespace)).items:
            name = item["metadata"]["name"]
            await ground.client.patch(kind, name, {"metadata": {"finalizers": None}}, namespace=namespace)
            await ground.client.delete(kind, name, namespace=namespace)


async def test_s04_a_bound_volume_ties_its_pod_to_its_node(any_ground: Ground) -> None:
    ground = any_ground
    await ground.node("n1")
    await ground.node("n2")
    await volume(ground, "pv", "local", "n2", claimRef={"namespace": "default", "name": "data"})
    await claim(ground, "data", "local", volumeName="pv")
    async with scheduling(ground):
        await pod_with(ground, "a", "data")
        assert await ground.bound("a") == {"a": "n2"}
    await clear(ground)


async def test_s04_a_provisioner_is_told_the_node(any_ground: Ground) -> None:
    ground = any_ground
    await ground.node("n1")
    await ground.node("n2")
    topology = [{"matchLabelExpressions": [{"key": names.HOSTNAME_LABEL, "values": ["n2"]}]}]
    await storage_class(ground, "made-on-demand", "example.com/disks", allowedTopologies=topology)
    await claim(ground, "data", "made-on-demand")
    async with scheduling(ground):
        await pod_with(ground, "a", "data")
        assert await ground.bound("a") == {"a": "n2"}
    made = await ground.client.get(kinds.PERSISTENT_VOLUME_CLAIMS, "data", namespace="default")
    assert made["metadata"]["annotations"][SELECTED_NODE] == "n2"
    await clear(ground)


async def test_s04_a_ready_made_volume_is_reserved(any_ground: Ground) -> None:
    ground = any_ground
    await ground.node("n1")
    await ground.node("n2")
    await storage_class(ground, "local", "kubernetes.io/no-provisioner")
    await claim(ground, "data", "local")
    async with scheduling(ground):
        await pod_with(ground, "a", "data")
        await ground.waits("a")
        await volume(ground, "pv", "local", "n2")
        assert await ground.bound("a") == {"a": "n2"}
    reserved = await ground.client.get(kinds.PERSISTENT_VOLUMES, "pv")
    wanted = await ground.client.get(kinds.PERSISTENT_VOLUME_CLAIMS, "data", namespace="default")
    assert reserved["spec"]["claimRef"]["name"] == "data"
    assert reserved["spec"]["claimRef"]["uid"] == wanted["metadata"]["uid"]
    await clear(ground)


async def test_s04_a_claim_that_is_not_there_is_waited_for(any_ground: Ground) -> None:
    ground = any_ground
    await ground.node("n1")
    await storage_class(ground, "on-demand", "example.com/disks")
    async with scheduling(ground):
        await pod_with(ground, "a", "data")
        await ground.waits("a")
        await claim(ground, "data", "on-demand")
        await ground.bound("a")
    await clear(ground)


async def test_s04_of_two_pods_for_one_volume_one_waits_and_holds_nothing(any_ground: Ground) -> None:
    ground = any_ground
    await ground.node("n1")
    await storage_class(ground, "local", "kubernetes.io/no-provisioner")
    await volume(ground, "pv", "local", "n1")
    for name in ("a", "b"):
        await claim(ground, f"data-{name}", "local")
        await pod_with(ground, name, f"data-{name}")

    async def settled() -> tuple[str, str] | None:
        nodes = {name: (await ground.get(name)).spec.node_name for name in ("a", "b")}
        placed = [name for name, node in nodes.items() if node]
        held = {each.spec.pod_ref.name for each in await ground.claims() if not each.metadata.deleting}
        return (placed[0], nodes[placed[0]]) if len(placed) == 1 and held == set(placed) else None

    async with scheduling(ground):
        placed, node = await until(settled)
        assert node == "n1"
        await ground.waits("b" if placed == "a" else "a")
    await clear(ground)
