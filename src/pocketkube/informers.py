"""One informer per kind for everything that runs in the cluster's process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from apportion.apis.kinds import PODS, Kind
from apportion.cluster.client import Client
from apportion.cluster.informer import Index, Informer

Json = dict[str, Any]

BY_OWNER = "owner"  # uid of the controller
BY_NAMESPACE = "namespace"
BY_NODE = "node"  # of pods
BY_CLAIM = "claim"  # namespace/name of the claims of pods
ORPHANS = "orphans"  # namespace of objects without a controller


class Informers:
    """Informers are made when first asked for, and started with the others or at once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._informers: dict[Kind, Informer[Json]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._started = False

    def of(self, kind: Kind) -> Informer[Json]:
        informer = self._informers.get(kind)
        if informer is None:
            indexes: dict[str, Index[Json]] = {BY_OWNER: _owner, BY_NAMESPACE: _namespace, ORPHANS: _orphan}
            if kind == PODS:
                indexes |= {BY_NODE: _node, BY_CLAIM: _claims}
            informer = self._informers[kind] = Informer(self._client, kind, into=dict, indexes=indexes)
            if self._started:
                self._run(informer)
        return informer

    async def start(self) -> None:
        """Start all that were asked for and wait until each has its first list."""
        self._started = True
        for informer in self._informers.values():
            self._run(informer)
        async with asyncio.timeout(30):
            await asyncio.gather(*(informer.synced() for informer in list(self._informers.values())))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _run(self, informer: Informer[Json]) -> None:
        self._tasks.append(asyncio.create_task(informer.run(), name=f"informer {informer.kind.plural}"))


def _owner(obj: Json) -> Iterable[str]:
    return [owner["uid"] for owner in obj["metadata"].get("ownerReferences") or () if owner.get("controller")]


def _namespace(obj: Json) -> Iterable[str]:
    return (obj["metadata"].get("namespace", ""),)


def _orphan(obj: Json) -> Iterable[str]:
    return () if _owner(obj) else _namespace(obj)


def _node(pod: Json) -> Iterable[str]:
    node = pod["spec"].get("nodeName")
    return (node,) if node else ()


def _claims(pod: Json) -> Iterable[str]:
    claims = (each.get("persistentVolumeClaim") for each in pod["spec"].get("volumes") or ())
    return [f"{pod['metadata']['namespace']}/{claim['claimName']}" for claim in claims if claim]
