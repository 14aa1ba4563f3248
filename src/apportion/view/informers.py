"""Informers of everything that a decision rests on; they keep a view in step with an API server.

Planes may read all of it. A person may have less rights: then a command loads what it may read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from apportion.apis import kinds
from apportion.apis.custom_resources.accelerators import NodeAccelerator
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.installation import Installation
from apportion.apis.meta import Bare
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.apis.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.view.view import View

BY_POD, BY_NODE, BY_UID = "pod", "node", "uid"


class Informers:
    """Existing informers of the process can be passed in; they are run by their owner.

    `only_namespace`: pods and volume claims of this namespace instead of all namespaces.
    """

    def __init__(
        self,
        client: Client,
        view: View,
        installation: Installation,
        *,
        nodes: Informer[Node] | None = None,
        namespaces: Informer[Bare] | None = None,
        accelerators: Informer[NodeAccelerator] | None = None,
        only_namespace: str | None = None,
    ) -> None:
        self._given: tuple[Informer[Any] | None, ...] = (nodes, namespaces, accelerators)
        self.namespaces = Informer(client, kinds.NAMESPACES, into=Bare) if namespaces is None else namespaces
        self.nodes = Informer(client, kinds.NODES, into=Node) if nodes is None else nodes
        self.accelerators = (
            Informer(client, kinds.NODE_ACCELERATORS, into=NodeAccelerator, namespace=installation.namespace)
            if accelerators is None
            else accelerators
        )
        self.claims = Informer(
            client,
            kinds.ALLOCATION_CLAIMS,
            into=AllocationClaim,
            namespace=installation.namespace,
            indexes={
                BY_POD: lambda claim: [claim.spec.pod_ref.uid],
                BY_NODE: lambda claim: [claim.spec.nodename],
            },
        )
        self.pods = Informer(
            client,
            kinds.PODS,
            into=Pod,
            namespace=only_namespace,
            indexes={BY_UID: lambda pod: [pod.metadata.uid]},
        )
        self.volume_claims = Informer(
            client, kinds.PERSISTENT_VOLUME_CLAIMS, into=PersistentVolumeClaim, namespace=only_namespace
        )
        self.volumes = Informer(client, kinds.PERSISTENT_VOLUMES, into=PersistentVolume)
        self.storage_classes = Informer(client, kinds.STORAGE_CLASSES, into=StorageClass)
        self._not_readable: list[Informer[Any]] = []
        self._storage: tuple[Informer[Any], ...] = (self.storage_classes, self.volumes, self.volume_claims)
        self._feed(view)

    def _feed(self, view: View) -> None:
        if view.volumes is None:
            self._storage = ()
        else:
            self.storage_classes.on_change(view.volumes.storage_class_changed)
            self.volumes.on_change(view.volumes.volume_changed)
            self.volume_claims.on_change(view.volumes.volume_claim_changed)
        self.namespaces.on_change(view.namespaces.changed)
        self.nodes.on_change(view.nodes.changed)
        self.accelerators.on_change(view.accelerators.changed)
        self.claims.on_change(view.claims.changed)
        self.pods.on_change(view.pods.changed)

    @property
    def all(self) -> tuple[Informer[Any], ...]:
        """Those that were made here, in the order in which they are best read."""
        used = (self.namespaces, *self._storage, self.nodes, self.accelerators, self.claims, self.pods)
        return tuple(informer for informer in used if not any(informer is each for each in self._given))

    async def load(self) -> None:
        """Read everything once, without following; raises what the server says against it."""
        for informer in self.all:
            await informer.load()

    async def load_readable(self) -> tuple[str, ...]:
        """Read once what the user may read; returns the resources that the user may not list."""
        self._not_readable = []
        for informer in self.all:
            try:
                await informer.load()
            except errors.Forbidden:
                self._not_readable.append(informer)
        return tuple(informer.kind.plural for informer in self._not_readable)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow the cluster as long as the block lasts; without what `load_readable` could not read."""
        followed = [informer for informer in self.all if informer not in self._not_readable]
        tasks = [asyncio.create_task(informer.run()) for informer in followed]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
