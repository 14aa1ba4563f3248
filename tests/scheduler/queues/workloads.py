"""Queues, gangs and running pods on a bare API server, with what a kubelet and a controller would do to them.

Evicted pods end a moment later; those that a controller owns are made anew under the next name.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from apportion.apis import kinds, names
from apportion.apis.meta import Bare
from apportion.apis.pods import Pod
from apportion.cluster import errors
from tests.scheduler.cluster import ApiCluster, background

JSON = dict[str, Any]
NAMESPACE = "default"


async def gpu_node(cluster: ApiCluster, name: str, gpus: int) -> None:
    """A node with whole GPUs."""
    await cluster.node(name, gpus=gpus, mig=0, resources={names.NVIDIA_GPU: str(gpus)})


async def queue(
    cluster: ApiCluster, name: str, *, quota: float, limit: float = -1, parent: str = "", **more: Any
) -> None:
    """A queue of GPUs; `more` goes into its spec."""
    spec: JSON = {"resources": {"gpu": {"quota": quota, "limit": limit}}, **more}
    if parent:
        spec["parentQueue"] = parent
    await cluster.client.create(kinds.QUEUES, {"metadata": {"name": name}, "spec": spec})


async def pod_group(cluster: ApiCluster, name: str, *, minimum: int, queue: str) -> None:
    body = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"minMember": minimum, "queue": queue}}
    await cluster.client.create(kinds.POD_GROUPS, body)


async def gpu_pod(cluster: ApiCluster, name: str, queue: str, *, gpus: int = 1, group: str = "", **more: Any) -> str:
    """A pod with whole GPUs; its uid."""
    labels = {names.QUEUE_LABEL: queue, **more.pop("labels", {})}
    annotations = {"pod-group-name": group} if group else {}
    return await cluster.pod(name, gpus=gpus, labels=labels, annotations=annotations, **more)


async def running(
    cluster: ApiCluster, name: str, queue: str, node: str, *, owner: str | None = None, **more: Any
) -> str:
    """A pod that runs on a node already. `owner` is the name of a ReplicaSet that is made for it."""
    if owner:
        more["owner"] = await replica_set(cluster, owner)
    uid = await gpu_pod(cluster, name, queue, node=node, **more)
    status: JSON = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    status["conditions"] = [{"type": "Ready", "status": "True"}]
    await cluster.client.patch(kinds.PODS, name, {"status": status}, namespace=NAMESPACE, subresource="status")
    return uid


async def replica_set(cluster: ApiCluster, name: str) -> str:
    """An owner that the scheduler finds (it waits for others), and on which no controller acts here; its uid."""
    labels = {"owner": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "busybox:1.36"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    body: JSON = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
    uid: str = (await cluster.client.create(kinds.REPLICA_SETS, body))["metadata"]["uid"]
    return uid


async def pods(cluster: ApiCluster) -> list[Pod]:
    return (await cluster.client.list(kinds.PODS, namespace=NAMESPACE, into=Pod)).items


async def clear(cluster: ApiCluster) -> None:
    """What `ApiCluster.clear` does not know."""
    for pod in await pods(cluster):
        if pod.metadata.finalizers:
            with suppress(errors.NotFound):
                await cluster.client.patch(
                    kinds.PODS, pod.metadata.name, {"metadata": {"finalizers": None}}, namespace=NAMESPACE
                )
    await cluster.clear()
    for kind in (kinds.POD_GROUPS, kinds.QUEUES, kinds.POD_DISRUPTION_BUDGETS, kinds.REPLICA_SETS):
        for item in (await cluster.client.list(kind, into=Bare)).items:
            with suppress(errors.NotFound):
                await cluster.client.delete(kind, item.metadata.name, namespace=item.metadata.namespace or None)
    with suppress(errors.NotFound):
        await cluster.client.delete(kinds.CONFIG_MAPS, names.PLACE_NOTES, namespace=names.DAS_NAMESPACE)


@dataclass
class Life:
    """A kubelet and a controller for all pods. `evicted` are the pods that were evicted, with the node of each."""

    cluster: ApiCluster
    evicted: dict[str, str] = field(default_factory=dict)
    keep: Collection[str] = ()  # pods that refuse to die
    remake: bool = True  # controllers make pods anew
    _known: dict[str, Pod] = field(default_factory=dict)
    _numbers: Any = field(default_factory=itertools.count)

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[Life]:
        async with background(self._run()):
            yield self

    async def _run(self) -> None:
        while True:
            found = {pod.metadata.uid: pod for pod in await pods(self.cluster)}
            for uid, pod in self._known.items():
                if self.remake and uid not in found and pod.metadata.owner_references:
                    await self._make_anew(pod)
            self._known = {uid: pod for uid, pod in found.items() if pod.spec.node_name}
            for pod in found.values():
                await self._end(pod)
            await asyncio.sleep(0.03)

    async def _end(self, pod: Pod) -> None:
        name = pod.metadata.name
        if any(each.type == "DisruptionTarget" for each in pod.status.conditions):
            self.evicted[name] = pod.spec.node_name or ""
        if pod.metadata.deleting and name not in self.keep:
            with suppress(errors.NotFound, errors.Conflict):
                await self.cluster.client.delete(kinds.PODS, name, namespace=NAMESPACE, grace=0, uid=pod.metadata.uid)

    async def _make_anew(self, pod: Pod) -> None:
        owner = pod.metadata.owner_references[0].uid
        base = pod.metadata.name.partition(".")[0]
        gpus = int(str(pod.spec.containers[0].resources.limits[names.NVIDIA_GPU]))
        await gpu_pod(
            self.cluster,
            f"{base}.{next(self._numbers)}",
            pod.metadata.labels[names.QUEUE_LABEL],
            gpus=gpus,
            owner=owner,
        )
