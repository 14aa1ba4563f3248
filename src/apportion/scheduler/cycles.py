"""Cycles of decisions: a change starts one, a burst of changes is one cycle.

Each cycle decides about every group that is new or could be helped by what changed, in order, on the in-memory
fleet, and hands each statement to the committer without waiting for it. Groups that ask for the same as one that
has no place are not tried again in that cycle. Why they have none is worked out between cycles (see `explanations`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable
from typing import Any

from apportion.apis.identities import PodUID
from apportion.apis.request import Request
from apportion.cluster import errors
from apportion.core import existing_claims, group_decision, group_turns, refusals
from apportion.core.cluster_changes import Change, Happened
from apportion.core.evictions import room, stale_groups
from apportion.core.evictions.room import Consolidation
from apportion.core.evictions.successor_places import KeptPlace
from apportion.core.explanations import messages
from apportion.core.explanations.queue_advice import QueueAdvice
from apportion.core.groups import Group
from apportion.core.operations import BindShare
from apportion.core.policies import Policy
from apportion.core.queues.entitlements import Entitlements
from apportion.core.queues.turns import Turn, Turns
from apportion.core.reasons import Code
from apportion.core.refusals import Refusal
from apportion.core.statement import Statement
from apportion.scheduler import metrics
from apportion.scheduler.backlog import Backlog, Stage, Waiting
from apportion.scheduler.commits import BindResult, CommitResult, Committer
from apportion.scheduler.events import Reporter
from apportion.scheduler.evictions import Evictions
from apportion.scheduler.explanations import Explanations
from apportion.scheduler.place_notes import PlaceNotes
from apportion.scheduler.reservations import Reservations, UnusedNominations
from apportion.view.view import View

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.01
TURN_SECONDS = 0.02  # the longest stretch of deciding before informers and commits get a turn
EXPLAIN_SECONDS = 0.004  # the same for explaining
PAUSE_SECONDS = 0.002  # between two such stretches: what arrives needs several turns of the event loop
EVICTED_SECONDS = 0.2  # until it is looked whether pods were evicted
GIVE_UP_AFTER = 3  # failed attempts after which a pod's claims are given up
IDLE_SECONDS = 30.0
SOON_OVER = frozenset({Code.INCOMPLETE, Code.MAKING_ROOM, Code.LIMIT_IN_USE})  # mostly
LAST_SECONDS = 1.0  # for statements that are being written when the leadership ends

_EXPLAINED = frozenset({Code.OVER_LIMIT, Code.OVER_QUOTA})  # reasons of queues whose remedy is worked out


class Cycles:
    """Backlog in, statements out."""

    def __init__(
        self,
        view: View,
        backlog: Backlog,
        committer: Committer,
        reporter: Reporter,
        policy: Policy,
        places: PlaceNotes,
        *,
        consolidation: Consolidation = Consolidation.GPUS,
        changed: asyncio.Event,
        now: Callable[[], float],
    ) -> None:
        self._view, self._backlog = view, backlog
        self._changes = view.changes.reader()
        self._committer, self._reporter = committer, reporter
        self._policy, self._places = policy, places
        self._changed = changed
        self._now = now
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self.entitlements = Entitlements(view.fleet)
        self._reservations = Reservations(view, policy, now)
        self._nominations = UnusedNominations(view, committer, now)
        self._evictions = Evictions(
            view,
            backlog,
            committer,
            reporter,
            policy,
            consolidation,
            self.entitlements,
            self._reservations,
            spawn=self._spawn,
            refuse=self._refuse,
            plan_again=self._plan_again,
            now=now,
        )
        advice = QueueAdvice(
            view.fleet,
            policy,
            self.entitlements,
            self._evictions.running_groups,
            consolidation,
            prepare=self._evictions.prepare_running_groups,
        )
        self._explanations = Explanations(view.fleet, policy, backlog, reporter, now, advice)
        backlog.on_change(self._demanded)

    def _demanded(self, uid: PodUID, request: Request | None) -> None:
        if request is None:
            self.entitlements.demand.remove(uid)
            self._reservations.pod_gone(uid)
        elif uid not in self._view.fleet.pod_nodes:
            self.entitlements.demand.add(request)

    async def run(self) -> None:
        """Decide until cancelled, or until a commit raises (the lease is lost, or a bug)."""
        self._restore(await self._places.read())
        try:
            while self._failure is None:
                await self._wait()
                self._changed.clear()
                await self._cycle()
            raise self._failure
        finally:
            finishing = asyncio.create_task(self._finish())
            try:
                await asyncio.shield(finishing)
            except asyncio.CancelledError:  # the lease was lost in a commit, and now the election knows it too
                await finishing
                raise

    def _restore(self, kept: list[tuple[KeptPlace, float]]) -> None:
        """Whose places cannot be kept as an earlier leader promised them: some of the victims may be gone already."""
        broken = [entry for key in self._reservations.restore(kept) if (entry := self._backlog.get(key)) is not None]
        for entry in sorted(broken, key=lambda each: each.order):
            self._serve_first(entry)

    async def _finish(self) -> None:
        """Wait a little for what is being written: a pod that is bound gets its event, and no claim is left over."""
        self._committer.close()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=LAST_SECONDS)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _wait(self) -> None:
        """For a change (and a moment more, since changes come in bursts) or for the time of a retry."""
        while not self._changed.is_set():
            clocks = (self._backlog, self._reservations, self._nominations)
            patience = min(self._until(each.next_time()) for each in clocks)
            idle = self._until(self._explanations.due)
            if patience <= 0:
                return
            try:
                async with asyncio.timeout(min(patience, max(idle, PAUSE_SECONDS))):
                    await self._changed.wait()
            except TimeoutError:
                self._explanations.work(EXPLAIN_SECONDS)
        until = time.monotonic() + BATCH_SECONDS
        self._explanations.work(EXPLAIN_SECONDS)  # a little even if changes never end
        await asyncio.sleep(until - time.monotonic())

    def _until(self, moment: float | None) -> float:
        return IDLE_SECONDS if moment is None else min(IDLE_SECONDS, moment - self._now())

    async def _cycle(self) -> None:
        self._reservations.release_useless()
        changes = self._changes.take()
        if any(_of_volumes(change) for change in changes):
            self._explanations.volumes_changed()
        taken = self._backlog.take(changes)
        if taken:
            log.debug("cycle: %d changes, %d groups to decide", len(changes), len(taken))
            with metrics.CYCLE_SECONDS.time():
                await self._decide_all(taken)
        await self._nominations.withdraw()
        for stage in Stage:
            metrics.PENDING.labels(stage.name.lower()).set(self._backlog.count(stage))

    async def _decide_all(self, taken: list[Waiting]) -> None:
        unschedulable: set[Hashable] = set()  # classes without a place: within a cycle a fleet hardly empties
        without_place: list[tuple[Waiting, Turn[Group]]] = []
        turns = self.entitlements.turns(())
        until = time.monotonic() + TURN_SECONDS
        for entry in taken:
            self._add_turn(turns, entry)
            until = await _others_had_a_turn(until)
        while (turn := turns.next()) is not None:
            waiting = self._backlog.get(turn.group.key)
            if waiting is not None and group_turns.outdated(self._view.fleet, turn):
                self._add_turn(turns, waiting)
            elif waiting is not None:
                outcome = self._decide(waiting, turn, unschedulable)
                self._go_on(turns, waiting, turn, outcome, unschedulable)
                if outcome is None or (isinstance(outcome, Refusal) and outcome.code in room.CAN_HELP):
                    without_place.append((waiting, turn))
            until = await _others_had_a_turn(until)
        if without_place:
            await self._evictions.make_room(without_place)

    def _add_turn(self, turns: Turns[Group], entry: Waiting) -> None:
        """Its pods that have no place yet; a refusal if they cannot have their turn."""
        fleet = self._view.fleet
        pods = [pod for pod in entry.group.members if pod.uid not in fleet.pod_nodes]
        if not pods or self._backlog.get(entry.key) is not entry:
            return
        turn = group_turns.next_turn(fleet, pods)
        if isinstance(turn, Turn):
            turns.add(turn)
        elif not entry.under_way:
            self._refuse(entry, turn)

    def _go_on(
        self,
        turns: Turns[Group],
        entry: Waiting,
        turn: Turn[Group],
        outcome: Statement | Refusal | None,
        unschedulable: set[Hashable],
    ) -> None:
        """Act on the outcome, and give a turn to whom it concerns."""
        if outcome is not None or entry.alike not in unschedulable:
            for other in self._backlog.wake_alike(entry):
                self._add_turn(turns, other)
        self._settle(entry, turn.group, outcome)
        if isinstance(outcome, Statement):
            turns.changed(turn.queue)
            self._add_turn(turns, entry)

    def _decide(self, entry: Waiting, turn: Turn[Group], unschedulable: set[Hashable]) -> Statement | Refusal | None:
        """None if no node has a place, which is to be explained later."""
        group, fleet = turn.group, self._view.fleet
        held = tuple(each for pod in group.members if fleet.holds(pod.uid) for each in fleet.slices_of(pod.uid))
        if held and entry.attempts >= GIVE_UP_AFTER and not existing_claims.leaving(held):
            return refusals.of_pod(group.members[0], Code.BINDING_GIVEN_UP, need=entry.attempts)
        stopped = group_turns.stopped(fleet, turn) or self._awaits_evictions(entry, turn)
        if stopped is not None:
            return stopped
        alike = entry.class_on(fleet, group)
        if alike in unschedulable:
            return None
        outcome = group_decision.decide(fleet, group, self._policy, explained=False)
        if isinstance(outcome, Statement) or outcome.code is not Code.NOT_PLACED:
            return outcome
        if fleet.reserves_for(group.key):
            return self._reservations.waits(group)
        unschedulable.add(alike)
        return None

    def _awaits_evictions(self, entry: Waiting, turn: Turn[Group]) -> Refusal | None:
        """A place may be free already, but not what its queue may use."""
        fleet, first = self._view.fleet, turn.group.members[0]
        awaited = group_turns.awaited_evictions(fleet, turn)
        if awaited is None:
            return None
        self._backlog.look_again(entry.key, self._now() + EVICTED_SECONDS)
        queue, pods = awaited
        if not fleet.reserves_for(turn.group.key):
            return refusals.of_pod(first, Code.LIMIT_IN_USE, queue, pods)
        nodes = ", ".join(sorted({each.node for each in fleet.reservations_for(turn.group.key)}))
        return refusals.of_pod(first, Code.MAKING_ROOM, nodes, pods)

    def _settle(self, entry: Waiting, group: Group, outcome: Statement | Refusal | None) -> None:
        metrics.DECISIONS.labels("placed" if isinstance(outcome, Statement) else "refused").inc()
        if isinstance(outcome, Statement):
            self._view.assumptions.decided(outcome)
            self._backlog.start(entry)
            for uid in group.uids:
                self.entitlements.demand.remove(uid)
            self._spawn(self._carry_out(entry, outcome))
        elif entry.under_way:
            return  # pods above the minimum: tried again when the others are bound
        elif outcome is None:
            self._explanations.add(entry, group)
        elif outcome.code in _EXPLAINED:
            self._reservations.give_up(entry.key)
            self._explanations.add(entry, group, outcome)
        else:
            self._refuse(entry, outcome)

    def _plan_again(self, entry: Waiting) -> None:
        """At once: what evicted pods leave is for the group that they were evicted for, whoever else waits."""
        if entry.under_way:
            return  # it is decided about when that is over
        self._backlog.retry(entry.key)
        self._changed.set()
        if self._backlog.get(entry.key) is entry and entry.attempts <= GIVE_UP_AFTER:
            self._serve_first(entry)

    def _serve_first(self, entry: Waiting) -> None:
        """A place, or room, for a group before anybody else has a turn."""
        fleet = self._view.fleet
        pods = [pod for pod in entry.group.members if pod.uid not in fleet.pod_nodes]
        turn = group_turns.next_turn(fleet, pods) if pods else None
        if not isinstance(turn, Turn):
            return
        outcome = self._decide(entry, turn, set())
        if isinstance(outcome, Statement):
            self._settle(entry, turn.group, outcome)
        elif outcome is None or outcome.code in room.CAN_HELP:
            self._evictions.make_room_for(entry, turn.group)

    def _demand_again(self, members: Iterable[Request]) -> None:
        for member in members:
            if member.uid not in self._view.fleet.pod_nodes and self._backlog.get(member.group_key) is not None:
                self.entitlements.demand.add(member)

    def _refuse(self, entry: Waiting, refusal: Refusal) -> None:
        """No node has a part in it, so there is nothing to work out."""
        self._backlog.park(entry, refusal)
        if refusal.code is not Code.MAKING_ROOM:
            self._reservations.give_up(entry.key)
        text = messages.of(refusal)
        for member in entry.group.members:
            self._reporter.waits(member, text, soon_over=refusal.code in SOON_OVER)
        if refusal.code.row.releases_claims:
            log.info("pod %s: %s", entry.group.name, refusal.detail)
            self._spawn(self._release_claims(entry))

    async def _carry_out(self, entry: Waiting, statement: Statement) -> None:
        result = await self._committer.commit(statement)
        for how in result.pods.values():
            metrics.COMMITS.labels(how.value).inc()
        if result.bound:
            self._view.assumptions.written(statement)
            metrics.WAIT_SECONDS.observe(self._now() - entry.since)
        else:
            self._undo(statement, result)
        shared = any(isinstance(bind, BindShare) for bind in statement.binds)
        self._backlog.finished(entry, failed=BindResult.FAILED in result.pods.values(), bound=not shared)
        if not self._view.fleet.pod_nodes.keys() >= set(entry.group.uids):
            self._changed.set()  # those that are left have their turn, though the cluster may have shown all of this
        self._complete_or_give_back(entry, statement, result)
        bound = {uid for uid, how in result.pods.items() if how is BindResult.BOUND}
        self._log_placed(entry, statement, bound)
        self._reporter.placed(statement, bound)

    def _complete_or_give_back(self, entry: Waiting, statement: Statement, result: CommitResult) -> None:
        """If a part of a gang is bound and less than its minimum: the others keep their places for the next attempts,
        and after the last one the part is evicted."""
        failed = [bind for bind in statement.binds if result.pods[bind.uid] is BindResult.FAILED]
        if not failed:
            return
        why = f"pod {failed[0].request.name} could not be bound"
        back = stale_groups.given_back(self._view.fleet, statement.group.key, why)
        if back is None:
            return
        if entry.attempts < GIVE_UP_AFTER:
            for bind in failed:
                self._reservations.hold(bind.request, bind.node)
            return
        self._reservations.give_up(entry.key)
        back.apply(self._view.fleet)
        self._view.assumptions.decided(back)
        self._spawn(self._evictions.give_back(back))

    def _log_placed(self, entry: Waiting, statement: Statement, bound: set[PodUID]) -> None:
        for bind in statement.binds:
            if bind.uid in bound:
                policy = self._policy.for_request(bind.request)
                log.info(
                    "pod %s placed on node %s: %s; policy %s, pending for %.1f s",
                    bind.request.key,
                    bind.node,
                    ", ".join(statement.devices_of(bind)) or "no new devices",
                    policy.name,
                    self._now() - entry.since,
                )

    def _undo(self, statement: Statement, result: CommitResult) -> None:
        self._view.assumptions.undo(statement, result.existing)
        for bind in statement.binds:
            if self._view.waiting.get(bind.uid) is None:
                self._reservations.forget(bind.request)
            outcome = result.pods[bind.uid]
            if outcome is BindResult.FAILED:
                failed = refusals.of_pod(bind.request, Code.BINDING_FAILED, result.reason)
                self._reporter.waits(bind.request, messages.of(failed))
            elif outcome is not BindResult.BOUND:  # the informer reports the pod's end, `Leftovers` removes its claims
                self._reporter.forget(bind.uid)
        self._demand_again(bind.request for bind in statement.binds if result.pods[bind.uid] is BindResult.FAILED)
        self._changed.set()

    async def _release_claims(self, entry: Waiting) -> None:
        claims = [claim for uid in entry.group.uids for claim in self._view.claims.of_pod(uid)]
        try:
            await self._committer.release(claims)
        except errors.ClusterError as error:
            log.warning("claims of pod %s: %s", entry.group.name, error)
        else:
            if claims:
                return  # their end wakes the pod
        self._backlog.retry(entry.key)
        self._changed.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and self._failure is None:
            self._failure = task.exception()
            self._changed.set()


async def _others_had_a_turn(until: float) -> float:
    """Informers and commits, if that time has come; until when nobody else has one."""
    if time.monotonic() <= until:
        return until
    await asyncio.sleep(0)
    return time.monotonic() + TURN_SECONDS


def _of_volumes(change: Change) -> bool:
    return change.kind in {Happened.STORAGE_CHANGED, Happened.EVERYTHING}
