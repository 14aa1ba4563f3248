"""The scheduler plane: campaign for the lease, and while leading keep a fleet and place pods on it.

Everything that a leader knows it learns after it was elected, from lists of the server: no state of an earlier leader,
or of an earlier leadership of this process, is kept. Only events that are still to be written outlive a leadership.
"""

from __future__ import annotations

import asyncio
import gc
import logging

from apportion.apis import names
from apportion.cluster import lease, probes
from apportion.cluster.client import Client
from apportion.cluster.events import Recorder
from apportion.cluster.lease import Election
from apportion.scheduler import metrics
from apportion.scheduler.commits import LeaseLost
from apportion.scheduler.leader import Leader
from apportion.scheduler.settings import Settings
from apportion.scheduler.standby.decision_log import DecisionLog
from apportion.view.leader_settings import LeaderSettings

log = logging.getLogger(__name__)

EVENT_WRITERS = 4


async def run(settings: Settings, client: Client | None = None) -> None:
    """Serve until cancelled."""
    async with client or Client.connect() as connected:
        election = Election(
            connected,
            name=settings.lease_name,
            namespace=settings.installation.namespace,
            identity=settings.identity or lease.identity(),
            duration=settings.lease_duration,
            renew_deadline=settings.lease_renew_deadline,
            retry=settings.lease_retry,
            annotations=LeaderSettings(settings.policy, settings.consolidation).annotations(),
        )
        recorder = Recorder(connected, names.DAS_SCHEDULER)
        leadership = Leadership(connected, election, settings, recorder)
        decision_log = DecisionLog(connected, settings.installation.namespace)
        async with (
            probes.serve(settings.probes, ready={"informers": leadership.is_ready}),
            asyncio.TaskGroup() as group,
        ):
            for _ in range(EVENT_WRITERS):
                group.create_task(recorder.run())
            group.create_task(decision_log.run())
            await election.run(lambda: decision_log.quiet_during(leadership.lead))


class Leadership:
    """What a leader does, from election to loss."""

    def __init__(self, client: Client, election: Election, settings: Settings, recorder: Recorder) -> None:
        self._client = client
        self._recorder = recorder
        self._election = election
        self._settings = settings
        self._syncing = False

    def is_ready(self) -> bool | str:
        """A standby is ready; a leader is once it knows the cluster."""
        return "the leader has not synced its caches yet" if self._syncing else True

    async def lead(self) -> None:
        """Until cancelled. A lease that expires during a commit and is renewed after all begins a new leadership."""
        while True:
            metrics.LEADING.set(1)
            try:
                await asyncio.create_task(self._lead_once())
            except* LeaseLost:
                log.warning("the lease expired during a commit")
            finally:
                metrics.LEADING.set(0)
                self._syncing = False
            if _cancelled():
                raise asyncio.CancelledError
            while not self._election.holds():  # noqa: ASYNC110  ends by renewal or by cancellation
                await asyncio.sleep(0.2)

    async def _lead_once(self) -> None:
        gc.unfreeze()  # what an earlier leadership knew
        gc.collect()
        leader = Leader(self._client, self._election, self._settings, self._recorder)
        self._syncing = True
        async with asyncio.TaskGroup() as group:
            for informer in leader.informers.all:
                group.create_task(informer.run())
            for informer in leader.informers.all:
                await informer.synced()
            log.info(
                "synced: nodes=%d pods=%d claims=%d pending=%d",
                *(
                    len(known)
                    for known in (leader.informers.nodes, leader.view.pods, leader.view.claims, leader.backlog)
                ),
            )
            self._syncing = False
            gc.freeze()  # the objects just read are long-lived: the collector need not traverse them
            for work in leader.work():
                group.create_task(work)


def _cancelled() -> bool:
    """A task group that fails while it is cancelled raises its failure alone.

    It also counts as a cancellation of the task in which it runs, so ask in another one.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
