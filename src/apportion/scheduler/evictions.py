"""Evictions: room for groups that have no place, and pods that are given back.

A plan is reserved in the fleet, then written: the places of the group, then the evictions. What cannot be carried out
as planned is undone, and the group is planned for again before anybody else has a turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Hashable, Iterator
from typing import Any

from apportion.core import group_turns
from apportion.core.cluster_changes import Happened
from apportion.core.evictions import room
from apportion.core.evictions.room import Consolidation
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.groups import Group
from apportion.core.operations import Evict, ObjectKind, Reserve
from apportion.core.policies import Policy
from apportion.core.queues.entitlements import Entitlements
from apportion.core.queues.shares import Shares
from apportion.core.queues.turns import Turn
from apportion.core.refusals import Refusal
from apportion.core.statement import Statement
from apportion.scheduler.backlog import Backlog, Waiting
from apportion.scheduler.commits import CommitResult, Committer
from apportion.scheduler.events import Reporter
from apportion.scheduler.reservations import OTHER_LEADER_SECONDS, Reservations
from apportion.view.budgets import REFUSED_SECONDS
from apportion.view.view import View

log = logging.getLogger(__name__)

ROOM_SECONDS = 0.5  # between two attempts to make room for one class
REST = 4  # times as long as making room took: until room is made again
RUNNING_SECONDS = 1.0  # how old the groups that run may be, except that victims which ended are none


class Evictions:
    """`spawn` runs what is written beside the cycles, `refuse` tells a group what it waits for, and `plan_again` is
    called with a group whose plan was not carried out."""

    def __init__(
        self,
        view: View,
        backlog: Backlog,
        committer: Committer,
        reporter: Reporter,
        policy: Policy,
        consolidation: Consolidation,
        entitlements: Entitlements,
        reservations: Reservations,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        refuse: Callable[[Waiting, Refusal], None],
        plan_again: Callable[[Waiting], None],
        now: Callable[[], float],
    ) -> None:
        self._view, self._backlog = view, backlog
        self._committer, self._reporter = committer, reporter
        self._policy, self._consolidation = policy, consolidation
        self._entitlements, self._reservations = entitlements, reservations
        self._spawn, self._refuse, self._plan_again = spawn, refuse, plan_again
        self._now = now
        self._running = RunningGroups(view.fleet)
        self._running_at = -RUNNING_SECONDS  # when they were as the cluster was
        self._not_before = 0.0
        self._no_room: dict[Hashable, float] = {}  # classes for which none could be made, until when that counts

    async def make_room(self, without_place: list[tuple[Waiting, Turn[Group]]]) -> None:
        """For those that have no place, in the order of their turns; in sum no more than a fifth of the time, however
        often something changes in a large cluster."""
        fleet, now = self._view.fleet, self._now()
        if now < self._not_before:
            for entry, _ in without_place:
                self._backlog.look_again(entry.key, self._not_before)
            return
        self._no_room = {alike: until for alike, until in self._no_room.items() if until > now}
        self._update_running()
        shares = self._entitlements.update()
        settled: set[Hashable] = set()  # classes that were tried now, or that are looked at again later
        made: dict[Hashable, None] = {}
        busy = 0.0
        for entry, turn in without_place:
            if not self._needs_room(entry, turn):
                continue
            group, first = turn.group, turn.group.members[0]
            alike = (entry.class_on(fleet, group), first.queue, group.priority, first.preemptible)
            if alike in self._no_room:
                if alike not in settled:  # something has changed since the last attempt
                    self._backlog.look_again(entry.key, self._no_room[alike])
                    settled.add(alike)
                continue
            settled.add(alike)
            began, parked = time.monotonic(), entry.alike
            if self._waits_for_another_leader(entry, group):
                continue
            if self._made(entry, group, shares):
                made[parked] = None
            else:
                self._no_room[alike] = now + ROOM_SECONDS
            busy += time.monotonic() - began
            await asyncio.sleep(0)
        for parked in made:
            self._backlog.wake_parked(parked)  # there may be room for others like them
        self._not_before = self._now() + REST * busy

    def _needs_room(self, entry: Waiting, turn: Turn[Group]) -> bool:
        fleet, waits = self._view.fleet, self._backlog.get(entry.key) is entry and not entry.under_way
        return waits and not fleet.reserves_for(turn.group.key) and not group_turns.outdated(fleet, turn)

    def make_room_for(self, entry: Waiting, group: Group) -> None:
        """At once, whoever else waits."""
        if not self._waits_for_another_leader(entry, group):
            self._update_running()
            self._made(entry, group, self._entitlements.update())

    def running_groups(self) -> RunningGroups:
        """As they are now, or were a short time ago."""
        if self._now() > self._running_at + RUNNING_SECONDS:
            self._update_running()
        else:
            self._running.follow()
        return self._running

    def prepare_running_groups(self) -> Iterator[None]:
        """Most of the work of `running_groups`, in steps."""
        return self._running.steps() if self._now() > self._running_at + RUNNING_SECONDS else iter(())

    def _update_running(self) -> None:
        self._running.update(int(time.time()))
        self._running_at = self._now()

    async def give_back(self, statement: Statement) -> None:
        """Evict what is left of a group."""
        result = await self._evict(statement)
        if not result.complete:
            self._view.assumptions.undo(statement, result.existing)

    def _waits_for_another_leader(self, entry: Waiting, group: Group) -> bool:
        if not self._reservations.of_another_leader(group):
            return False
        self._backlog.look_again(entry.key, self._now() + OTHER_LEADER_SECONDS)
        waits = self._reservations.waits(group)
        if waits is not None:
            self._refuse(entry, waits)
        return True

    def _made(self, entry: Waiting, group: Group, shares: Shares) -> bool:
        fleet, running = self._view.fleet, self.running_groups()
        statement = room.make_room(fleet, group, self._policy, shares, running, self._consolidation)
        if statement is None:
            return False
        self._view.assumptions.decided(statement)
        self._reservations.made(statement)
        self._spawn(self._clear(entry, statement))
        waits = self._reservations.waits(group)
        if waits is not None:
            self._refuse(entry, waits)
        return True

    async def _clear(self, entry: Waiting, statement: Statement) -> None:
        """Evict for a group; it is bound once its place is free."""
        result = await self._evict(statement, wanted=lambda: self._reservations.kept(statement))
        if result.complete:
            return
        log.warning("room for %s could not be made: %s", statement.group.name, result.reason)
        self._remember_refused(result)
        reserved = [operation for operation in statement.operations if isinstance(operation, Reserve)]
        await self._committer.withdraw((each.request, each.reservation.node) for each in reserved)
        self._view.assumptions.undo(
            statement, {ref for ref in result.existing if ref.kind is not ObjectKind.NOMINATION}
        )
        self._reservations.withdrawn(reserved)
        if result.wanted:
            self._plan_again(entry)

    def _remember_refused(self, result: CommitResult) -> None:
        """These are no victims for a while; then everybody is looked at again."""
        if result.refused:
            self._view.budgets.refused(result.refused)
            changes = self._view.changes
            asyncio.get_running_loop().call_later(REFUSED_SECONDS, changes.note, Happened.QUEUE_CHANGED)

    async def _evict(self, statement: Statement, wanted: Callable[[], bool] = lambda: True) -> CommitResult:
        """Write a statement that evicts, and tell who was evicted."""
        evictions = [operation for operation in statement.operations if isinstance(operation, Evict)]
        for eviction in evictions:
            log.info("pod %s on node %s is evicted: %s", eviction.request.key, eviction.node, eviction.reason)
        result = await self._committer.commit(statement, wanted=wanted)
        self._reporter.evicted([each for each in evictions if each.confirmed_by in result.existing])
        if result.complete:
            self._view.assumptions.written(statement)
        return result
