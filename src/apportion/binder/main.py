"""The binder plane: campaign for the lease, and while leading bind the pods that share GPUs.

The scheduler decides, and writes a BindRequest for each pod with a share of a GPU. The leader carries them out, and
keeps a reservation pod for every shared GPU. All that must last is in those objects: a leader that is killed at any
moment is followed by one that finds its work there.
"""

from __future__ import annotations

import asyncio
import logging

from apportion.apis import names
from apportion.binder import metrics
from apportion.binder.leader import Leader
from apportion.binder.settings import Settings
from apportion.cluster import lease, probes
from apportion.cluster.client import Client
from apportion.cluster.events import Recorder
from apportion.cluster.lease import Election

log = logging.getLogger(__name__)

EVENT_WRITERS = 4


async def run(settings: Settings, client: Client | None = None) -> None:
    """Serve until cancelled."""
    async with client or Client.connect() as connected:
        election = Election(
            connected,
            name=settings.lease_name,
            namespace=settings.installation.sharing_namespace,
            identity=settings.identity or lease.identity(),
            duration=settings.lease_duration,
            renew_deadline=settings.lease_renew_deadline,
            retry=settings.lease_retry,
        )
        recorder = Recorder(connected, names.BINDER_APP)
        leadership = Leadership(connected, election, settings, recorder)
        async with (
            probes.serve(settings.probes, ready={"informers": leadership.is_ready}),
            asyncio.TaskGroup() as group,
        ):
            for _ in range(EVENT_WRITERS):
                group.create_task(recorder.run())
            await election.run(leadership.lead)


class Leadership:
    """What a leader does, from election to loss."""

    def __init__(self, client: Client, election: Election, settings: Settings, recorder: Recorder) -> None:
        self._client = client
        self._election = election
        self._settings = settings
        self._recorder = recorder
        self._syncing = False

    def is_ready(self) -> bool | str:
        """A standby is ready; a leader is once it knows the cluster."""
        return "the leader has not synced its caches yet" if self._syncing else True

    async def lead(self) -> None:
        """Until cancelled. A lease that expires and is renewed after all only delays what was to be written."""
        leader = Leader(self._client, self._election, self._settings, self._recorder)
        self._syncing = True
        metrics.LEADING.set(1)
        try:
            async with asyncio.TaskGroup() as group:
                for work in leader.informers.runs():
                    group.create_task(work)
                await leader.informers.synced()
                informers = leader.informers
                log.info(
                    "synced: BindRequests=%d, GPU reservations and pods that share GPUs=%d, nodes=%d",
                    *(len(informers.requests), len(informers.pods), len(informers.nodes)),
                )
                self._syncing = False
                group.create_task(leader.run())
        finally:
            self._syncing = False
            metrics.LEADING.set(0)
