"""Tests that must hold on both clusters."""

from __future__ import annotations

import pytest

from apportion.apis.kinds import CONFIG_MAPS
from tests.environments.cluster import Cluster


@pytest.mark.kubectl
def test_both_clusters_answer_kubectl_and_our_client(any_cluster: Cluster, namespace: str) -> None:
    any_cluster.kubectl("create", "configmap", "-n", namespace, "c", "--from-literal=a=b")
    assert any_cluster.kubectl("get", "configmap", "-n", namespace, "c", "-o", "jsonpath={.data.a}") == "b"
    assert any_cluster.kubectl("get", "nodes", "-o", "name") == ""


async def test_both_clusters_answer_our_client(any_cluster: Cluster, namespace: str) -> None:
    async with any_cluster.client() as client:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}
        await client.create(CONFIG_MAPS, body, namespace=namespace)
        assert (await client.get(CONFIG_MAPS, "c", namespace=namespace))["data"] == {"a": "b"}
