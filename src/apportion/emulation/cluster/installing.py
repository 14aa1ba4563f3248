"""Applying manifests to an embedded cluster and waiting until what they describe runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from apportion.apis import kinds
from apportion.apis.kinds import Kind
from apportion.cluster import errors
from apportion.cluster.client import Client
from pocketkube.api.registry import Registry

Json = dict[str, Any]
Progress = Callable[[str], None]

MANAGER = "apportion-up"
_LOOK_SECONDS = 0.1
_KIND_SECONDS = 10.0
_LOG_LINES = 5


class InstallError(Exception):
    """Something that was applied did not come up; the text says what and why."""


async def apply(client: Client, registry: Registry, objects: Iterable[Json]) -> None:
    """Server-side apply, in order. A kind that was defined a moment ago is waited for."""
    for body in objects:
        kind = await _kind(registry, body)
        await client.apply(kind, body, field_manager=MANAGER)


async def wait_ready(client: Client, objects: Iterable[Json], *, seconds: float, progress: Progress) -> None:
    """Until every Deployment and DaemonSet among the objects has all its pods ready."""
    waiting = {
        (kind, body["metadata"]["namespace"], body["metadata"]["name"])
        for body in objects
        for kind in (kinds.DEPLOYMENTS, kinds.DAEMON_SETS)
        if body["kind"] == kind.kind
    }
    try:
        async with asyncio.timeout(seconds):
            while waiting:
                for each in sorted(waiting, key=lambda entry: entry[2]):
                    kind, namespace, name = each
                    there = _readiness(kind, await client.get(kind, name, namespace=namespace))
                    if there is not None:
                        progress(f"{kind.kind} {namespace}/{name} is ready ({there})")
                        waiting.discard(each)
                if waiting:
                    await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        texts = [await _trouble(client, namespace, name) for _, namespace, name in sorted(waiting, key=str)]
        raise InstallError(f"not ready after {seconds:g} s: " + "; ".join(texts)) from None


async def _kind(registry: Registry, body: Json) -> Kind:
    api_version, name = body["apiVersion"], body["kind"]
    for _ in range(int(_KIND_SECONDS / _LOOK_SECONDS)):
        found = registry.by_api_version(api_version, name)
        if found is not None:
            return Kind(found.group, found.version, found.plural, found.kind, namespaced=found.namespaced)
        await asyncio.sleep(_LOOK_SECONDS)
    raise InstallError(f"the cluster has no kind {api_version} {name}")


def _readiness(kind: Kind, obj: Json) -> str | None:
    """`2/2` if all is up to date and ready, else None."""
    status = obj.get("status") or {}
    if status.get("observedGeneration") != obj["metadata"].get("generation"):
        return None
    if kind == kinds.DAEMON_SETS:
        wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
        updated = status.get("updatedNumberScheduled", 0)
    else:
        wanted, ready = obj["spec"].get("replicas", 1), status.get("readyReplicas", 0)
        updated = status.get("updatedReplicas", 0)
    return f"{ready}/{wanted}" if ready == wanted == updated else None


async def _trouble(client: Client, namespace: str, name: str) -> str:
    """Why a workload is not ready, from its first pod that is not ready."""
    listing = await client.list(kinds.PODS, namespace=namespace)
    for pod in listing.items:
        if not pod["metadata"]["name"].startswith(f"{name}-") or _is_ready(pod):
            continue
        state = (pod.get("status") or {}).get("containerStatuses") or [{}]
        waiting = state[0].get("state", {}).get("waiting") or {}
        said = waiting.get("message") or waiting.get("reason") or await _last_words(client, pod)
        return f"{name} ({pod['metadata']['name']}: {said})"
    return f"{name} (no pods)"


def _is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def _last_words(client: Client, pod: Json) -> str:
    meta = pod["metadata"]
    try:
        chunks = [chunk async for chunk in client.logs(meta["namespace"], meta["name"], tail=_LOG_LINES)]
    except errors.ClusterError as error:
        return str(error)
    return b"".join(chunks).decode(errors="replace").strip() or "no log output"
