"""lightkube on the embedded cluster: list, watch, create, patch, bind, log, delete, with and without asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import lightkube
import msgspec
import pytest
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.models.core_v1 import Container, ObjectReference, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Node, Pod, PodBinding
from lightkube.types import CascadeType, PatchType

from tests.environments.embedded import Embedded
from tests.environments.waiting import until


@pytest.fixture
def client(embedded_cluster: Embedded, namespace: str) -> Iterator[Any]:
    with lightkube.Client(KubeConfig.from_file(embedded_cluster.kubeconfig), namespace=namespace) as made:
        yield made


def test_lightkube_creates_binds_and_deletes_a_pod(client: Any) -> None:
    made = client.create(_pod("bound"))
    assert made.status is not None
    assert made.status.phase == "Pending"
    (node,) = client.list(Node)
    # A server answers with a Status, which lightkube then cannot read as a binding.
    with suppress(msgspec.ValidationError):
        client.create(_binding("bound", node), "bound")
    assert client.get(Pod, "bound").spec.nodeName == node.metadata.name
    until(lambda: client.get(Pod, "bound").status.phase == "Running", "the pod runs")
    until(lambda: "hello\n" in list(client.log("bound")), "its log")
    client.patch(Pod, "bound", {"metadata": {"labels": {"colour": "red"}}}, patch_type=PatchType.MERGE)
    assert [pod.metadata.name for pod in client.list(Pod, labels={"colour": "red"}, chunk_size=1)] == ["bound"]
    client.delete(Pod, "bound", grace_period=0, cascade=CascadeType.FOREGROUND)
    with pytest.raises(ApiError) as gone:
        client.get(Pod, "bound")
    assert gone.value.status.code == 404


def test_lightkube_applies_and_sees_conflicts(client: Any) -> None:
    meta = ObjectMeta(name="thing")
    client.apply(
        ConfigMap(metadata=meta, data={"a": "1", "b": "2"}, apiVersion="v1", kind="ConfigMap"), field_manager="x"
    )
    other = ConfigMap(metadata=meta, data={"a": "3"}, apiVersion="v1", kind="ConfigMap")
    with pytest.raises(ApiError) as conflict:
        client.apply(other, field_manager="y")
    assert conflict.value.status.code == 409
    assert client.apply(other, field_manager="y", force=True).data == {"a": "3", "b": "2"}
    stale = client.get(ConfigMap, "thing")
    stale.metadata.resourceVersion = "1"
    with pytest.raises(ApiError) as refused:
        client.replace(stale)
    assert refused.value.status.code == 409


async def test_lightkube_watches(embedded_cluster: Embedded, namespace: str) -> None:
    config = KubeConfig.from_file(embedded_cluster.kubeconfig)
    async with lightkube.AsyncClient(config, namespace=namespace) as client:
        seen: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        watching = asyncio.create_task(_follow(client, seen))
        await client.create(ConfigMap(metadata=ObjectMeta(name="thing"), data={"a": "1"}))
        await _next(seen, ("ADDED", "thing"))
        await client.patch(ConfigMap, "thing", {"data": {"a": "2"}})
        await _next(seen, ("MODIFIED", "thing"))
        await client.delete(ConfigMap, "thing")
        await _next(seen, ("DELETED", "thing"))
        watching.cancel()


async def _follow(client: Any, seen: asyncio.Queue[tuple[str, str]]) -> None:
    async for kind, thing in client.watch(ConfigMap, resource_version="0"):
        await seen.put((kind, thing.metadata.name))


async def _next(seen: asyncio.Queue[tuple[str, str]], wanted: tuple[str, str]) -> None:
    async with asyncio.timeout(30):
        while await seen.get() != wanted:
            pass


def _binding(name: str, node: Any) -> PodBinding:
    target = ObjectReference(kind="Node", name=node.metadata.name)
    return PodBinding(metadata=ObjectMeta(name=name), target=target)


def _pod(name: str) -> Pod:
    container = Container(name="main", image="busybox:1.36", command=["sh", "-c", "echo hello; sleep 1000"])
    # No scheduler answers to this name: the test binds.
    spec = PodSpec(schedulerName="nobody", containers=[container], terminationGracePeriodSeconds=1)
    return Pod(metadata=ObjectMeta(name=name), spec=spec)
