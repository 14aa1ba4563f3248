"""What the scheduler sees of a cluster: informers, and the fleet and the backlog that they keep.

The leader decides on it; `apportion why` and `apportion top` look at the same, so they cannot disagree with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from apportion.apis import kinds, names
from apportion.apis.accelerators import NodeAccelerator
from apportion.apis.claims import AllocationClaim
from apportion.apis.errors import InputError
from apportion.apis.meta import Bare
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.cluster import clock
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.core.catalog import Catalog
from apportion.scheduler import leftovers
from apportion.scheduler.backlog import Backlog
from apportion.scheduler.mirror import Mirror
from apportion.scheduler.storage import StorageMirror

CONDITION = "PodScheduled"


def _nothing(_pod: Pod, _error: InputError) -> None:
    pass


class Sight:
    """Informers of everything that a decision rests on, and the fleet that they keep."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str = names.DAS_NAMESPACE,
        on_problem: Callable[[Pod, InputError], None] = _nothing,
    ) -> None:
        self.changed = asyncio.Event()
        self.nodes = Informer(client, kinds.NODES, into=Node)
        self.accelerators = Informer(client, kinds.NODE_ACCELERATORS, into=NodeAccelerator, namespace=namespace)
        self.claims = Informer(
            client,
            kinds.ALLOCATION_CLAIMS,
            into=AllocationClaim,
            namespace=namespace,
            indexes={
                leftovers.BY_POD: lambda claim: [claim.spec.pod_ref.uid],
                leftovers.BY_NODE: lambda claim: [claim.spec.nodename],
            },
        )
        self.pods = Informer(client, kinds.PODS, into=Pod, indexes={leftovers.BY_UID: lambda pod: [pod.metadata.uid]})
        self.namespaces = Informer(client, kinds.NAMESPACES, into=Bare)
        self.backlog = Backlog(clock.elapsed)
        self.mirror = Mirror(
            Catalog.shipped(), self.backlog, now=clock.elapsed, on_change=self.changed.set, on_problem=on_problem
        )
        self.storage = StorageMirror(client, self.mirror.fleet, self.mirror.storage_changed)
        self.namespaces.on_change(self.mirror.namespace_changed)
        self.nodes.on_change(self.mirror.node_changed)
        self.accelerators.on_change(self.mirror.accelerator_changed)
        self.claims.on_change(self.mirror.claim_changed)
        self.pods.on_change(self.mirror.pod_changed)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        volumes = (self.storage.classes, self.storage.volumes, self.storage.claims)
        return self.namespaces, *volumes, self.nodes, self.accelerators, self.claims, self.pods

    async def load(self) -> None:
        """Read everything once, without following; raises what the server says against it."""
        for informer in self.informers:
            await informer.load()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow the cluster as long as the block lasts."""
        tasks = [asyncio.create_task(informer.run()) for informer in self.informers]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def said(self, uid: str) -> str:
        """What the pod's condition PodScheduled says."""
        pods = self.pods.indexed(leftovers.BY_UID, uid)
        said = [entry.message for pod in pods for entry in pod.status.conditions if entry.type == CONDITION]
        return said[0] if said else ""
