"""Nodes, pods and agents that exist only as objects: what a scheduler sees of a cluster, and nothing else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from apportion.apis import kinds, names
from apportion.apis.custom_resources.accelerators import AcceleratorProfile
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.meta import Bare, to_wire
from apportion.cluster import errors
from apportion.cluster.client import Client, PatchType
from apportion.core.catalog import Catalog

PRODUCT = "NVIDIA A100-SXM4-80GB"
GPUS = 8
AT_ONCE = 32
JSON = dict[str, Any]


async def prepare(client: Client) -> None:
    """The installation's namespace and its custom resource definitions."""
    await until_namespace(client, "default")
    await client.apply(kinds.NAMESPACES, {"metadata": {"name": names.DAS_NAMESPACE}}, field_manager="bench")
    await custom_resources(client, sys.executable)


async def custom_resources(client: Client, python: str) -> None:
    """The definitions that belong to the scheduler of this interpreter: another version may have others."""
    program = "import apportion, pathlib; print(pathlib.Path(apportion.__file__).parent)"
    package = subprocess.check_output([python, "-c", program], text=True).strip()  # noqa: ASYNC221  nothing else runs
    for crd in yaml.safe_load_all((Path(package) / "manifests" / "01-crds.yaml").read_text()):
        await client.apply(kinds.CUSTOM_RESOURCE_DEFINITIONS, crd, field_manager="bench")


async def nodes(client: Client, count: int) -> None:
    """Nodes with GPUs, offered whole and in slices of every profile."""
    model = Catalog.shipped().find(PRODUCT)
    assert model is not None
    offer = {"cpu": "128", "memory": "1024Gi", "pods": "110", names.NVIDIA_GPU: str(GPUS)}
    for profile in model.profiles:
        wire = profile.name.replace("+", names.PLUS_ON_WIRE)
        offer[f"{names.SLICE_PREFIX}{wire}"] = str(profile.most * GPUS)
    status = {
        "capacity": offer,
        "allocatable": offer,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
    }

    async def make(name: str) -> None:
        labels = {
            names.HOSTNAME_LABEL: name,
            names.MIG_CAPABLE_LABEL: "true",
            names.GPU_PRODUCT_LABEL: "A100",
            names.GPU_MEMORY_LABEL: str(model.memory_mib),
        }
        await client.create(kinds.NODES, {"metadata": {"name": name, "labels": labels}})
        await client.patch(kinds.NODES, name, {"status": status}, subresource="status")

    await all_of(make(_node(number)) for number in range(count))


async def agents(client: Client, count: int) -> None:
    """An agent on each node that is ready, and what it reports: every GPU in MIG mode."""
    model = Catalog.shipped().find(PRODUCT)
    assert model is not None
    profiles = [
        to_wire(AcceleratorProfile(name=p.name, size=p.size, starts=list(p.starts), limit=p.limit))
        for p in model.profiles
    ]

    async def make(node: str) -> None:
        agent = await _agent_pod(client, node)
        gpus = [
            {
                "uuid": f"GPU-{uuid.uuid5(uuid.UUID(int=0), f'{node}-{number}')}",
                "model": PRODUCT,
                "memoryMiB": model.memory_mib,
                "migEnabled": True,
                "profiles": profiles,
            }
            for number in range(GPUS)
        ]
        report = {
            "gpus": gpus,
            "agent": {"namespace": names.DAS_NAMESPACE, "name": agent["metadata"]["name"], "uid": _uid(agent)},
            "conditions": [{"type": "Ready", "status": "True", "reason": "GPUsAccessible"}],
        }
        meta = {"name": node, "namespace": names.DAS_NAMESPACE}
        await client.create(kinds.NODE_ACCELERATORS, {"metadata": meta, "spec": {}})
        await client.patch(
            kinds.NODE_ACCELERATORS, node, {"status": report}, namespace=names.DAS_NAMESPACE, subresource="status"
        )

    await all_of(make(_node(number)) for number in range(count))


async def pods(client: Client, count: int, scheduler: str, limits: dict[str, str]) -> None:
    """Pods that wait for a node."""
    resources = {"limits": limits, "requests": {"cpu": "1", "memory": "1Gi", **limits}}
    spec = {"schedulerName": scheduler, "containers": [{"name": "main", "image": "busybox", "resources": resources}]}
    await all_of(
        client.create(
            kinds.PODS, {"metadata": {"name": f"p{number:05}", "namespace": "default"}, "spec": spec}, into=Bare
        )
        for number in range(count)
    )


async def count_events(client: Client) -> int:
    """Pods whose event Scheduled is there."""
    found = await client.list(kinds.EVENTS, namespace="default", fields="reason=Scheduled")
    return len({event["involvedObject"]["name"] for event in found.items})


async def clear(client: Client) -> None:
    """Remove pods of the run, their claims and their events."""
    await client.raw("DELETE", "/api/v1/namespaces/default/pods", body={"gracePeriodSeconds": 0})
    claims = await client.list(kinds.ALLOCATION_CLAIMS, namespace=names.DAS_NAMESPACE, into=AllocationClaim)
    await all_of(_remove(client, claim.name) for claim in claims.items)
    await client.raw("DELETE", "/api/v1/namespaces/default/events")
    while await count_events(client) or (await client.list(kinds.PODS, namespace="default", into=Bare)).items:  # noqa: ASYNC110
        await asyncio.sleep(0.2)


async def until_namespace(client: Client, name: str) -> None:
    while True:
        with suppress(errors.NotFound):
            await client.get(kinds.NAMESPACES, name)
            return
        await asyncio.sleep(0.1)


async def _remove(client: Client, claim: str) -> None:
    with suppress(errors.NotFound):
        await client.patch(
            kinds.ALLOCATION_CLAIMS, claim, {"metadata": {"finalizers": None}}, namespace=names.DAS_NAMESPACE
        )
        await client.delete(kinds.ALLOCATION_CLAIMS, claim, namespace=names.DAS_NAMESPACE)


async def _agent_pod(client: Client, node: str) -> JSON:
    name = f"agent-{node}"
    meta = {"name": name, "namespace": names.DAS_NAMESPACE, "labels": {names.APP_LABEL: names.AGENT_APP}}
    spec = {"nodeName": node, "containers": [{"name": "agent", "image": "busybox"}]}
    made = await client.create(kinds.PODS, {"metadata": meta, "spec": spec})
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await client.patch(
        kinds.PODS, name, ready, namespace=names.DAS_NAMESPACE, how=PatchType.strategic, subresource="status"
    )
    return made


async def all_of(work: Iterable[Awaitable[Any]]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(step: Awaitable[Any]) -> None:
        async with slots:
            await step

    async with asyncio.TaskGroup() as group:
        for step in work:
            group.create_task(one(step))


def _node(number: int) -> str:
    return f"node-{number:04}"


def _uid(made: JSON) -> str:
    uid: str = made["metadata"]["uid"]
    return uid
