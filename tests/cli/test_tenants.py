"""What a tenant with rights in one namespace gets to see: its own pods, and no name of another namespace's.

Every reader here is a ServiceAccount with a token of its own, bound to the shipped roles.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from apportion import manifests
from apportion.apis import kinds
from apportion.apis.kinds import Kind
from apportion.cli import snapshot, top, why
from apportion.cluster import errors
from tests.builders import groups, pods
from tests.cli.cli_runner import called
from tests.environments.cluster import Cluster
from tests.scheduler.cluster import ApiCluster, prepared, scheduling, until

ROLES = Kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
ROLE_BINDINGS = Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLE_BINDINGS = Kind(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
TENANT, OTHER = "team-a", "team-b"
BINDING = "gpu-people"


@dataclass
class Tenancy:
    """A cluster with two tenants; `user` may use one namespace, `viewer` reads all, `stranger` nothing."""

    cluster: ApiCluster
    user: Path
    viewer: Path
    stranger: Path


@pytest.fixture
async def tenancy(any_cluster: Cluster, tmp_path: Path) -> AsyncIterator[Tenancy]:
    async with prepared(any_cluster.kubeconfig) as cluster:
        for namespace in (TENANT, OTHER):
            await cluster.client.apply(kinds.NAMESPACES, {"metadata": {"name": namespace}}, field_manager="test")
        for role in manifests.load():
            if role["metadata"]["name"] in {"apportion-viewer", "apportion-user"}:
                await cluster.client.apply(ROLES, role, field_manager="test")
        await cluster.client.create(ROLE_BINDINGS, binding("apportion-user", "user"), namespace=TENANT)
        await cluster.client.create(CLUSTER_ROLE_BINDINGS, binding("apportion-viewer", "viewer"))
        readers = [await reader(cluster, any_cluster, name, tmp_path) for name in ("user", "viewer", "stranger")]
        yield Tenancy(cluster, *readers)
        await cluster.client.delete(CLUSTER_ROLE_BINDINGS, BINDING)
        for role_name in ("apportion-viewer", "apportion-user"):
            await cluster.client.delete(ROLES, role_name)
        for namespace in (TENANT, OTHER):
            for pod in (await cluster.client.list(kinds.PODS, namespace=namespace)).items:
                with suppress(errors.NotFound):  # its owner was deleted before
                    await cluster.client.delete(kinds.PODS, pod["metadata"]["name"], namespace=namespace, grace=0)
            await cluster.client.delete(kinds.NAMESPACES, namespace)
        for namespace in (TENANT, OTHER):
            await until(lambda namespace=namespace: gone(cluster, namespace))


async def gone(cluster: ApiCluster, namespace: str) -> bool:
    with suppress(errors.NotFound):
        await cluster.client.get(kinds.NAMESPACES, namespace)
        return False
    return True


def binding(role: str, account: str) -> dict[str, Any]:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": TENANT}
    role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    return {"metadata": {"name": BINDING}, "roleRef": role_ref, "subjects": [subject]}


async def reader(cluster: ApiCluster, served_by: Cluster, account: str, folder: Path) -> Path:
    """The kubeconfig of a person who has a token."""
    await cluster.client.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": account, "namespace": TENANT}})
    token = served_by.api.create(f"/api/v1/namespaces/{TENANT}/serviceaccounts/{account}/token", {"spec": {}})
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [{"name": account, "user": {"token": token["status"]["token"]}}]
    config["contexts"][0]["context"] |= {"user": account, "namespace": TENANT}
    path = folder / f"{account}.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def condition(cluster: ApiCluster, name: str, namespace: str) -> str:
    async def said() -> str:
        pod = await cluster.get(name, namespace)
        return next((each.message for each in pod.status.conditions if each.type == "PodScheduled"), "")

    return await until(said)


async def events(cluster: ApiCluster, namespace: str) -> list[str]:
    async def told() -> list[str]:
        return [event["message"] for event in (await cluster.client.list(kinds.EVENTS, namespace=namespace)).items]

    return await until(told)


async def test_x01_no_text_in_a_namespace_names_a_pod_of_another(tenancy: Tenancy) -> None:
    cluster = tenancy.cluster
    await cluster.node("n1", gpus=1)
    await cluster.pod("secret-project", namespace=OTHER, slices={"7g.40gb": 1})
    async with scheduling(cluster):
        await until(lambda: bound(cluster, "secret-project", OTHER))
        await cluster.pod("waits", namespace=TENANT, slices={"1g.5gb": 1})
        await cluster.pod("waits-too", namespace=OTHER, slices={"1g.5gb": 1})
        told = await condition(cluster, "waits", TENANT)
        own = await condition(cluster, "waits-too", OTHER)
        messages = await events(cluster, TENANT)
    for text in (told, *messages):
        assert OTHER not in text
        assert "secret-project" not in text
    assert "by deleting 1 pod of another namespace" in told
    assert f"by deleting pod {OTHER}/secret-project" in own, "one explanation, worded for each namespace"

    code, out, err = await called(why.command, pod="waits", output="json", kubeconfig=tenancy.user)
    assert code == 0, err
    answer = json.loads(out)
    assert answer["sentence"] == told
    assert "secret-project" not in out
    assert "pods outside namespace team-a" in answer["note"]
    assert "nodes" in answer["note"]
    assert "apportion-viewer" in answer["note"]
    code, out, err = await called(why.command, pod="waits", kubeconfig=tenancy.user)
    assert code == 0, err
    assert told in out
    assert "apportion-viewer" in out

    code, out, err = await called(why.command, pod="waits", output="json", kubeconfig=tenancy.viewer)
    assert code == 0, err
    answer = json.loads(out)
    assert answer["sentence"] == told
    assert answer["cheapestChange"]["pods"] == [f"{OTHER}/secret-project"], "the viewer may list all pods"
    assert "note" not in answer


async def bound(cluster: ApiCluster, name: str, namespace: str) -> str:
    return (await cluster.get(name, namespace)).spec.node_name


async def test_x01_top_shows_what_the_reader_may_see(tenancy: Tenancy) -> None:
    cluster = tenancy.cluster
    await cluster.node("n1", gpus=1)
    await cluster.pod("secret-project", namespace=OTHER, slices={"4g.20gb": 1})
    async with scheduling(cluster):
        await until(lambda: bound(cluster, "secret-project", OTHER))
        await cluster.pod("there", namespace=TENANT, slices={"3g.20gb": 1})
        await until(lambda: bound(cluster, "there", TENANT))
        await cluster.pod("waits", namespace=TENANT, slices={"1g.5gb": 1})
        told = await condition(cluster, "waits", TENANT)

    code, out, err = await called(top.command, once=True, kubeconfig=tenancy.user)
    assert code == 0, err
    assert "2 pods with GPUs, 1 pending" in out
    assert "team-a/there  1 x 3g.20gb on node n1 (Pending)" in out
    assert "pending team-a/waits" in out
    assert "secret-project" not in out
    assert "apportion-viewer" in out
    code, out, err = await called(top.command, output="json", kubeconfig=tenancy.user)
    assert code == 0, err
    shown = json.loads(out)
    assert shown["waiting"] == [{"pod": "team-a/waits", "reason": told}]
    assert [entry["pod"] for entry in shown["pods"]] == ["team-a/there"]

    code, out, err = await called(top.command, once=True, kubeconfig=tenancy.viewer)
    assert code == 0, err
    assert "1 node, 1 GPU: 2 slices" in out
    assert "apportion-viewer" not in out
    code, out, err = await called(snapshot.command, kubeconfig=tenancy.viewer)
    assert code == 0, err
    assert "secret-project" in out


async def test_x01_without_rights_the_answer_names_the_role(tenancy: Tenancy) -> None:
    await tenancy.cluster.pod("waits", namespace=TENANT, slices={"1g.5gb": 1})
    for command, options in ((why.command, {"pod": "waits"}), (top.command, {"once": True}), (snapshot.command, {})):
        code, out, err = await called(command, kubeconfig=tenancy.stranger, **options)
        assert (code, out) == (1, "")
        assert "forbidden" in err
        assert "apportion-user" in err
        assert "apportion-viewer" in err
        assert len(err.strip().splitlines()) == 1
    code, out, err = await called(why.command, pod="waits", output="json", kubeconfig=tenancy.user)
    assert (code, err) == (0, "")
    assert json.loads(out)["sentence"] == "The scheduler has not reported a reason yet."


async def test_x01_q02_a_viewer_and_the_scheduler_find_the_queue_of_a_pod_in_its_owner(tenancy: Tenancy) -> None:
    client = tenancy.cluster.client
    clusters = Kind("ray.io", "v1", "rayclusters", "RayCluster")
    definition = groups.definition(clusters.group, clusters.kind)
    await client.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, definition)
    body = groups.owner(clusters.api_version, "RayCluster", "ray", queue="absent", spec={"headGroupSpec": {}})
    body["metadata"]["namespace"] = TENANT

    async def created() -> dict[str, Any] | None:
        with suppress(errors.NotFound):  # the kind is not served yet
            return await client.create(clusters, body)
        return None

    try:
        above = {"apiVersion": clusters.api_version, "kind": "RayCluster", **await until(created)}
        pod = groups.owned(pods.our_pod("head", namespace=TENANT, limits={"cpu": "1m"}), above)
        await client.create(kinds.PODS, pod)
        code, out, err = await called(why.command, pod="head", output="json", kubeconfig=tenancy.viewer)
        assert code == 0, err
        answer = json.loads(out)
        assert answer["layer"] == "queue"
        assert "absent" in answer["sentence"]
    finally:
        await client.delete(kinds.CUSTOM_RESOURCE_DEFINITIONS, definition["metadata"]["name"])
