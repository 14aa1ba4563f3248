"""Informers of everything that a decision rests on; they keep a view in step with an API server.

Planes may read all of it. A person may have less rights: then a command loads what it may read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from apportion.apis import kinds, names
from apportion.apis.custom_resources.accelerators import NodeAccelerator
from apportion.apis.custom_resources.bind_requests import BindRequest
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.custom_resources.kai_config import Config
from apportion.apis.custom_resources.pod_groups import PodGroup
from apportion.apis.custom_resources.queues import Queue
from apportion.apis.disruption_budgets import PodDisruptionBudget
from apportion.apis.installation import Installation
from apportion.apis.meta import Bare
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.apis.priorities import PriorityClass
from apportion.apis.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.cluster.optional_informers import Burst, OptionalInformer
from apportion.view.owner_informers import OwnerInformers
from apportion.view.view import View

Source = Informer[Any] | OptionalInformer

BY_POD, BY_NODE, BY_UID, BY_GROUP = "pod", "node", "uid", "group"


def named_group(pod: Pod) -> tuple[str, ...]:
    """The key of the group that the pod names, if it names one."""
    name = pod.metadata.annotations.get(names.POD_GROUP)
    return (f"{pod.metadata.namespace}/{name}",) if name else ()


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
        self._view = view
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
            indexes={BY_UID: lambda pod: [pod.metadata.uid], BY_GROUP: named_group},
        )
        self.volume_claims = Informer(
            client, kinds.PERSISTENT_VOLUME_CLAIMS, into=PersistentVolumeClaim, namespace=only_namespace
        )
        self.queues = Informer(client, kinds.QUEUES, into=Queue)
        self.pod_groups = Informer(client, kinds.POD_GROUPS, into=PodGroup, namespace=only_namespace)
        self.priority_classes = Informer(client, kinds.PRIORITY_CLASSES, into=PriorityClass)
        self.budgets = Informer(
            client, kinds.POD_DISRUPTION_BUDGETS, into=PodDisruptionBudget, namespace=only_namespace
        )
        self.configs = Informer(client, kinds.KAI_CONFIGS, into=Config)
        self.bind_requests = Informer(client, kinds.BIND_REQUESTS, into=BindRequest, namespace=only_namespace)
        self.volumes = Informer(client, kinds.PERSISTENT_VOLUMES, into=PersistentVolume)
        self.storage_classes = Informer(client, kinds.STORAGE_CLASSES, into=StorageClass)
        self._not_readable: list[Source] = []
        self._storage: tuple[Informer[Any], ...] = (self.storage_classes, self.volumes, self.volume_claims)
        self._queue_changes = Burst(view.queues.all_changed)
        objects = view.group_objects
        self.optional = (
            OptionalInformer(client, self.configs, silent=True),
            OptionalInformer(client, self.queues),
            OptionalInformer(client, self.priority_classes, on_known=objects.priority_classes_known),
            OptionalInformer(client, self.pod_groups, namespace=only_namespace, on_known=objects.pod_groups_known),
            OptionalInformer(client, self.budgets, namespace=only_namespace, silent=True),
            OptionalInformer(client, self.bind_requests, namespace=only_namespace, silent=True),
        )
        self._owners = OwnerInformers(client, view, self.pods, only_namespace=only_namespace)
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
        self.queues.on_change(self._queue_changes.changed)
        self.pod_groups.on_change(view.group_objects.pod_group_changed)
        self.priority_classes.on_change(view.group_objects.priority_class_changed)
        self.budgets.on_change(view.budgets.changed)
        self.configs.on_change(view.grouper_config.changed)
        self.configs.on_change(view.sharing_switch.changed)
        self.bind_requests.on_change(view.shares.bind_request_changed)

    @property
    def all(self) -> tuple[Source | OwnerInformers, ...]:
        """Those that were made here, in the order in which they are best read."""
        return (*self._sources, self._owners)

    @property
    def _sources(self) -> tuple[Source, ...]:
        used: tuple[Source, ...] = (
            self.namespaces,
            *self._storage,
            *self.optional,
            self.nodes,
            self.accelerators,
            self.claims,
            self.pods,
        )
        return tuple(source for source in used if not any(source is each for each in self._given))

    async def load(self) -> None:
        """Read everything once, without following; raises what the server says against it."""
        for source in self._sources:
            await source.load()
            self._queue_changes.flush()
        await self._owners.load()

    async def load_readable(self) -> tuple[str, ...]:
        """Read once what the user may read; returns the resources that the user may not list."""
        self._not_readable = []
        for source in self._sources:
            try:
                await source.load()
            except errors.Forbidden:
                self._not_readable.append(source)
            self._queue_changes.flush()
        await self._owners.load()
        hidden = tuple(source.kind.plural for source in self._not_readable)
        self._view.queues.hidden = kinds.QUEUES.plural in hidden
        return hidden

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow the cluster as long as the block lasts; without what `load_readable` could not read."""
        followed = [source for source in self.all if source not in self._not_readable]
        tasks = [asyncio.create_task(source.run()) for source in followed]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
