"""The scheduler plane: campaign for the lease, and while leading keep a fleet and place pods on it.

Everything that a leader knows it learns after it was elected, from lists of the server: nothing that an
earlier leader or an earlier reign of ours believed can linger.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import uuid

from apportion.cluster import probes
from apportion.cluster.client import Client
from apportion.cluster.lease import Election
from apportion.scheduler import metrics
from apportion.scheduler.commits import LeaseLost
from apportion.scheduler.plane import Plane
from apportion.scheduler.settings import Settings

log = logging.getLogger(__name__)


async def run(settings: Settings, client: Client | None = None) -> None:
    """Serve until cancelled."""
    async with client or Client.connect() as connected:
        election = Election(
            connected,
            name=settings.lease_name,
            namespace=settings.installation.namespace,
            identity=settings.identity or identity(),
            duration=settings.lease_duration,
            renew_deadline=settings.lease_renew_deadline,
            retry=settings.lease_retry,
        )
        reign = Reign(connected, election, settings)
        async with probes.serve(settings.probes, ready={"informers": reign.is_ready}):
            await election.run(reign.lead)


def identity() -> str:
    """In a pod its name: a container that is started again there takes its own lease back without waiting.

    The kubelet has seen the end of the one before, so there are never two. Elsewhere nothing is that sure.
    """
    return os.environ.get("POD_NAME") or f"{os.uname().nodename}_{uuid.uuid4().hex[:8]}"


class Reign:
    """What a leader does, from election to loss."""

    def __init__(self, client: Client, election: Election, settings: Settings) -> None:
        self._client = client
        self._election = election
        self._settings = settings
        self._syncing = False

    def is_ready(self) -> bool | str:
        """A standby is ready; a leader is once it knows the cluster."""
        return "the leader has not synced its caches yet" if self._syncing else True

    async def lead(self) -> None:
        while True:
            metrics.LEADING.set(1)
            try:
                await self._reign()
            except* LeaseLost:
                log.warning("the lease expired during a commit")
            finally:
                metrics.LEADING.set(0)
                self._syncing = False
            while not self._election.holds():  # noqa: ASYNC110  ends by renewal or by cancellation
                await asyncio.sleep(0.2)

    async def _reign(self) -> None:
        plane = Plane(self._client, self._election, self._settings)
        self._syncing = True
        async with asyncio.TaskGroup() as group:
            for informer in plane.informers.all:
                group.create_task(informer.run())
            for informer in plane.informers.all:
                await informer.synced()
            log.info(
                "synced: %d nodes, %d pods, %d claims; %d pods pending",
                *(len(known) for known in (plane.informers.nodes, plane.view.pods, plane.view.claims, plane.backlog)),
            )
            self._syncing = False
            gc.unfreeze()  # of an earlier reign
            gc.collect()
            gc.freeze()  # what was just read lives long: the collector need not walk it again
            for work in plane.work():
                group.create_task(work)
