"""The working parts of a leader: informers, the fleet that they keep, and those who act on it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from apportion.apis import kinds, names
from apportion.apis.accelerators import NodeAccelerator
from apportion.apis.claims import AllocationClaim
from apportion.apis.meta import Bare
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.cluster import clock, errors
from apportion.cluster.client import Client
from apportion.cluster.events import Recorder
from apportion.cluster.informer import Informer
from apportion.cluster.lease import Election
from apportion.core.catalog import Catalog
from apportion.core.policies import Policy
from apportion.scheduler import leftovers
from apportion.scheduler.backlog import Backlog
from apportion.scheduler.commits import Committer
from apportion.scheduler.events import Reporter
from apportion.scheduler.leftovers import Leftovers
from apportion.scheduler.mirror import Mirror
from apportion.scheduler.rounds import Rounds
from apportion.scheduler.settings import Settings
from apportion.scheduler.storage import StorageMirror

UNCONFIRMED_SECONDS = 30.0
SWEEP_SECONDS = 5.0


class Plane:
    """Informers, the fleet they keep, and those who act on it."""

    def __init__(self, client: Client, election: Election, settings: Settings) -> None:
        now = clock.elapsed
        namespace = settings.namespace
        self._client = client
        self._namespace = namespace
        self._changed = changed = asyncio.Event()
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
        self._recorder = Recorder(client, names.DAS_SCHEDULER)
        self._reporter = Reporter(client, self._recorder, said=self._said, now=now)
        self.backlog = Backlog(now)
        self.mirror = Mirror(
            Catalog.shipped(),
            self.backlog,
            now=now,
            on_change=changed.set,
            on_problem=self._reporter.problem,
        )
        self.namespaces = Informer(client, kinds.NAMESPACES, into=Bare)
        self.storage = StorageMirror(client, self.mirror.fleet, self.mirror.storage_changed)
        self.namespaces.on_change(self.mirror.namespace_changed)
        self.nodes.on_change(self.mirror.node_changed)
        self.accelerators.on_change(self.mirror.accelerator_changed)
        self.claims.on_change(self.mirror.claim_changed)
        self.pods.on_change(self.mirror.pod_changed)
        self.pods.on_change(self._forget_reports)
        self._leftovers = Leftovers(client, claims=self.claims, pods=self.pods, nodes=self.nodes, holds=election.holds)
        self._rounds = Rounds(
            self.mirror,
            self.storage,
            self.backlog,
            Committer(client, namespace=namespace, holds=election.holds),
            self._reporter,
            Policy.named(settings.policy),
            changed=changed,
            now=now,
        )

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        volumes = (self.storage.classes, self.storage.volumes, self.storage.claims)
        return self.namespaces, *volumes, self.nodes, self.accelerators, self.claims, self.pods

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """What runs once the informers have synced."""
        return [
            self._recorder.run(),
            self._reporter.run(),
            self._leftovers.run(),
            self._rounds.run(),
            self._sweep(),
        ]

    def _said(self, uid: str) -> str:
        """What the pod's condition PodScheduled says already."""
        pods = self.pods.indexed(leftovers.BY_UID, uid)
        said = [entry.message for pod in pods for entry in pod.status.conditions if entry.type == "PodScheduled"]
        return said[0] if said else ""

    def _forget_reports(self, old: Pod | None, new: Pod | None) -> None:
        subject = new or old
        if subject is not None and (new is None or new.spec.node_name):
            self._reporter.forget(subject.metadata.uid)

    async def _sweep(self) -> None:
        """End assumptions that no informer confirmed, if the server says that they are wrong."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            pods, claims = self.mirror.unconfirmed(UNCONFIRMED_SECONDS)
            with suppress(errors.ClusterError):
                for name in claims:
                    await self._check_claim(name)
                for uid in pods:
                    await self._check_pod(uid)

    async def _check_claim(self, name: str) -> None:
        try:
            await self._client.get(kinds.ALLOCATION_CLAIMS, name, namespace=self._namespace, into=Bare)
        except errors.NotFound:
            self.mirror.drop_claim(name)

    async def _check_pod(self, uid: str) -> None:
        waiting = self.backlog.get(uid)
        if waiting is None:
            self.mirror.drop_pod(uid)
            return
        request = waiting.request
        try:
            pod = await self._client.get(kinds.PODS, request.name, namespace=request.namespace, into=Pod)
        except errors.NotFound:
            self.mirror.drop_pod(uid)
            return
        if pod.metadata.uid != uid or not pod.spec.node_name:
            self.mirror.drop_pod(uid)
            self.backlog.retry(uid)
