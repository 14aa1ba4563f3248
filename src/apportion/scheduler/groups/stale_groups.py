"""Evicts groups that stay below their minimum, so that they can start again whole. Rule Q09.

Since when that is so stands in the status of the PodGroup. For groups without one (its kind is not installed, or it
cannot be created) each leader remembers since when it has seen it.

Evictions go through the Eviction API. What a disruption budget forbids is tried again later.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from apportion.apis.custom_resources.pod_groups import SUCCEEDED
from apportion.apis.errors import LedgerError
from apportion.cluster.events import Recorder
from apportion.core.evictions import stale_groups
from apportion.core.operations import Evict
from apportion.core.statement import Statement
from apportion.scheduler.commits import CommitResult, Committer, carried_out
from apportion.scheduler.events import Reporter
from apportion.scheduler.groups import statuses
from apportion.scheduler.groups.group_pods import GroupPods
from apportion.scheduler.groups.status_content import SETTLE_SECONDS
from apportion.view.view import View

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
RETRY_SECONDS = 10.0  # after some of the pods could not be evicted
STALE = "StaleJob"  # as tools know it


class StaleGroups:
    """`grace` is how many seconds a group may run without its minimum, -1 for ever."""

    def __init__(
        self,
        view: View,
        pods: GroupPods,
        committer: Committer,
        reporter: Reporter,
        recorder: Recorder,
        *,
        grace: int,
        holds: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        self._view, self._pods = view, pods
        self._committer, self._reporter, self._recorder = committer, reporter, recorder
        self._grace, self._holds, self._now = grace, holds, now
        self._not_before: dict[str, float] = {}
        self._changed: set[str] = set()
        self._below_since: dict[str, int] = {}  # groups without a PodGroup
        view.groups.on_change(self._changed.add)

    async def run(self) -> None:
        """Work until cancelled; the informers must have synced."""
        while self._grace != stale_groups.NEVER:
            await asyncio.sleep(LOOK_SECONDS)
            now = self._now()
            self._not_before = {key: at for key, at in self._not_before.items() if at > now}
            today = int(time.time())
            for statement in stale_groups.evictions(self._view.fleet, today, self._grace, self._observed(today)):
                if self._holds() and statement.group.key not in self._not_before and self._is_stale(statement):
                    await self._evict(statement)

    def _observed(self, today: int) -> dict[str, int]:
        """Since when groups without a PodGroup are below their minimum; those that are for a moment are not in it."""
        for key in self._changed:
            below = key in self._view.fleet.gangs and stale_groups.below_minimum(self._view.fleet, key)
            if not below:
                self._below_since.pop(key, None)
            elif self._pods.group(key) is None:
                self._below_since.setdefault(key, today)
        self._changed.clear()
        for key in [key for key in self._below_since if self._pods.group(key) is not None]:
            del self._below_since[key]
        return {key: since for key, since in self._below_since.items() if today - since >= SETTLE_SECONDS}

    def _is_stale(self, statement: Statement) -> bool:
        """Not if its pods have begun to finish, if its missing pods have places that are being cleared for them, or if
        something has changed while other groups were evicted."""
        key, fleet = statement.group.key, self._view.fleet
        same = key in fleet.gangs and stale_groups.below_minimum(fleet, key) == list(statement.group.members)
        return same and not fleet.reserves_for(key) and not self._finishes(key)

    def _finishes(self, key: str) -> bool:
        if any(pod.status.phase == SUCCEEDED for pod in self._pods.of(key)):
            return True
        if key not in self._below_since:
            return False
        # Without a PodGroup pods name none, so those that have ended are found by their owners alone.
        groups = self._view.groups
        ended = (groups.read(pod).reading.request for pod in self._view.pods if pod.status.phase == SUCCEEDED)
        if any(request is not None and request.group_key == key for request in ended):
            self._not_before[key] = self._now() + RETRY_SECONDS
            return True
        return False

    async def _evict(self, statement: Statement) -> None:
        try:
            statement.apply(self._view.fleet)
        except LedgerError:  # something has changed since: look again
            return
        result = await carried_out(self._committer, self._view.assumptions, statement)
        if result is None:
            return
        if not result.complete:
            self._not_before[statement.group.key] = self._now() + RETRY_SECONDS
        self._report(statement, result)

    def _report(self, statement: Statement, result: CommitResult) -> None:
        planned = [each for each in statement.operations if isinstance(each, Evict)]
        evicted = [each for each in planned if each.confirmed_by in result.existing]
        self._reporter.evicted(evicted)
        text = f"{planned[0].reason}; {len(evicted)} of {len(planned)} pods are evicted"
        if not result.complete:
            text += f", the others later: {result.reason}"
        log.warning("group %s: %s", statement.group.key, text)
        group = self._pods.group(statement.group.key)
        if group is not None:
            self._recorder.warn(statuses.regarding(group), STALE, text)
