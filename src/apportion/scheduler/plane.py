"""The working parts of a leader: what it sees, and those who act on it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from apportion.apis import kinds, names
from apportion.apis.errors import InputError
from apportion.apis.meta import Bare
from apportion.apis.pods import Pod
from apportion.cluster import clock, errors
from apportion.cluster.client import Client
from apportion.cluster.events import Recorder
from apportion.cluster.lease import Election
from apportion.core.policies import Policy
from apportion.scheduler.backlog import Backlog
from apportion.scheduler.commits import Committer
from apportion.scheduler.events import Reporter
from apportion.scheduler.intake import Intake
from apportion.scheduler.leftovers import Leftovers
from apportion.scheduler.rounds import Rounds
from apportion.scheduler.settings import Settings
from apportion.scheduler.storage import VolumeSteps
from apportion.view.informers import Informers
from apportion.view.view import View

UNCONFIRMED_SECONDS = 30.0
SWEEP_SECONDS = 5.0


class Plane:
    """What a leader is made of."""

    def __init__(self, client: Client, election: Election, settings: Settings) -> None:
        now = clock.elapsed
        self._client = client
        self._namespace = settings.namespace
        self.view = View(now=now)
        self.informers = informers = Informers(client, self.view, namespace=settings.namespace)
        self.backlog = Backlog(now)
        changed = asyncio.Event()
        self.view.changes.on_change(changed.set)
        self._intake = Intake(self.view.waiting, self.backlog, on_offer=changed.set, on_problem=self._on_problem)
        self._reporter = Reporter(
            client,
            Recorder(client, names.DAS_SCHEDULER),
            said=self.view.pods.condition_message,
            now=now,
            busy=lambda: self.backlog.busy,
        )
        informers.pods.on_change(self._forget_reports)
        self._leftovers = Leftovers(
            client, claims=informers.claims, pods=informers.pods, nodes=informers.nodes, holds=election.holds
        )
        self._rounds = Rounds(
            self.view,
            VolumeSteps(self.view.fleet, informers.volume_claims, informers.volumes),
            self.backlog,
            Committer(client, namespace=settings.namespace, holds=election.holds),
            self._reporter,
            Policy.named(settings.policy),
            changed=changed,
            now=now,
        )

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """What runs once the informers have synced."""
        return [
            self._reporter.run(),
            self._leftovers.run(),
            self._rounds.run(),
            self._sweep(),
        ]

    def _on_problem(self, pod: Pod, error: InputError) -> None:
        self._reporter.problem(pod, error)

    def _forget_reports(self, old: Pod | None, new: Pod | None) -> None:
        subject = new or old
        if subject is not None and (new is None or new.spec.node_name):
            self._reporter.forget(subject.metadata.uid)

    async def _sweep(self) -> None:
        """End assumptions that no informer confirmed, if the server says that they are wrong."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            pods, claims = self.view.assumptions.unconfirmed(UNCONFIRMED_SECONDS)
            with suppress(errors.ClusterError):
                for name in claims:
                    await self._check_claim(name)
                for uid in pods:
                    await self._check_pod(uid)

    async def _check_claim(self, name: str) -> None:
        try:
            await self._client.get(kinds.ALLOCATION_CLAIMS, name, namespace=self._namespace, into=Bare)
        except errors.NotFound:
            self.view.assumptions.drop_claim(name)

    async def _check_pod(self, uid: str) -> None:
        waiting = self.backlog.get(uid)
        if waiting is None:
            self.view.assumptions.drop_pod(uid)
            return
        request = waiting.request
        try:
            pod = await self._client.get(kinds.PODS, request.name, namespace=request.namespace, into=Pod)
        except errors.NotFound:
            self.view.assumptions.drop_pod(uid)
            return
        if pod.metadata.uid != uid or not pod.spec.node_name:
            self.view.assumptions.drop_pod(uid)
            self.backlog.retry(uid)
