"""Rounds of decisions: a change wakes one, a burst of changes is one.

Each round decides about every pod that is new or could be helped by what changed, in order, on the
in-memory fleet, and hands each plan to the committer without waiting for it. Those without a place are told
why at the end of the round, when everybody who has one is on it; pods that ask for the same thing get the
same refusal without another search.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import msgspec

from apportion.cluster import errors
from apportion.core import adoption, cycle, refusals, sentences
from apportion.core.policies import Policy
from apportion.core.reasons import Code
from apportion.core.refusals import Refusal
from apportion.core.statement import Statement
from apportion.scheduler import metrics
from apportion.scheduler.backlog import Backlog, Stage, Waiting
from apportion.scheduler.commits import Committer, Outcome, Result
from apportion.scheduler.events import Reporter
from apportion.view.view import View

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.01
BREATH_SECONDS = 0.02  # the longest stretch of deciding before informers and commits get a turn
GIVE_UP_AFTER = 3  # failed attempts after which a pod's claims are given up
IDLE_SECONDS = 30.0


class Rounds:
    """The scheduler's heart: backlog in, plans out."""

    def __init__(
        self,
        view: View,
        backlog: Backlog,
        committer: Committer,
        reporter: Reporter,
        policy: Policy,
        *,
        changed: asyncio.Event,
        now: Callable[[], float],
    ) -> None:
        self._view, self._backlog = view, backlog
        self._changes = view.changes.reader()
        self._committer, self._reporter = committer, reporter
        self._policy = policy
        self._changed = changed
        self._now = now
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Decide until cancelled, or until a commit raises (the lease is lost, or a bug)."""
        try:
            while self._failure is None:
                await self._wait()
                self._changed.clear()
                await self._round()
            raise self._failure
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _wait(self) -> None:
        """For a change (and a moment more, since changes come in bursts) or for the time of a retry."""
        due = self._backlog.next_time()
        patience = IDLE_SECONDS if due is None else max(0.0, min(IDLE_SECONDS, due - self._now()))
        try:
            async with asyncio.timeout(patience):
                await self._changed.wait()
        except TimeoutError:
            return
        await asyncio.sleep(BATCH_SECONDS)

    async def _round(self) -> None:
        taken = self._backlog.take(self._changes.take())
        if taken:
            with metrics.ROUND_SECONDS.time():
                await self._decide_all(taken)
        for stage in Stage:
            metrics.PENDING.labels(stage.name.lower()).set(self._backlog.count(stage))

    async def _decide_all(self, taken: list[Waiting]) -> None:
        unschedulable: set[bytes] = set()  # within a round a fleet hardly empties
        left: list[Waiting] = []
        async for entry in self._with_breath(taken):
            outcome = self._decide(entry, unschedulable)
            if outcome is None:
                left.append(entry)
            else:
                self._follow_up(entry, outcome)
        refused: dict[bytes, Refusal] = {}
        async for entry in self._with_breath(left):
            self._follow_up(entry, self._explain(entry, refused))

    async def _with_breath(self, entries: list[Waiting]) -> AsyncIterator[Waiting]:
        """Those that still wait when their turn comes; now and then informers and commits get a turn."""
        breath = time.monotonic() + BREATH_SECONDS
        for entry in entries:
            if self._backlog.get(entry.key) is entry:
                yield entry
            if time.monotonic() > breath:
                await asyncio.sleep(0)
                breath = time.monotonic() + BREATH_SECONDS

    def _follow_up(self, entry: Waiting, outcome: Statement | Refusal) -> None:
        if isinstance(outcome, Statement):
            metrics.DECISIONS.labels("placed").inc()
            self._view.assumptions.decided(outcome)
            self._backlog.start(entry)
            self._spawn(self._carry_out(entry, outcome))
        else:
            metrics.DECISIONS.labels("refused").inc()
            self._backlog.park(entry, outcome)
            for request in entry.group.members:
                self._reporter.waits(request, sentences.of(outcome))
            if outcome.code is Code.CLAIMS_GIVEN_UP:
                log.info("pod %s: %s", entry.group.name, outcome.detail)
                self._spawn(self._release_claims(entry))

    def _decide(self, entry: Waiting, unschedulable: set[bytes]) -> Statement | Refusal | None:
        """None if there is no place, which is to be explained later."""
        group, fleet = entry.group, self._view.fleet
        held = tuple(slice_ for uid in group.uids for slice_ in fleet.slices_of(uid))
        if held and entry.attempts >= GIVE_UP_AFTER and not adoption.leaving(held):
            return refusals.of_pod(group.members[0], Code.CLAIMS_GIVEN_UP, "binding failed repeatedly")
        if not held and wish(entry) in unschedulable:
            return None
        outcome = cycle.decide(fleet, group, self._policy, explained=False)
        if isinstance(outcome, Statement) or outcome.code is not Code.NOT_PLACED:
            return outcome
        unschedulable.add(wish(entry))
        return None

    def _explain(self, entry: Waiting, refused: dict[bytes, Refusal]) -> Statement | Refusal:
        """Why there is no place; a statement after all if one came free meanwhile."""
        known = refused.get(wish(entry))
        if known is not None:
            return known
        outcome = cycle.decide(self._view.fleet, entry.group, self._policy)
        if isinstance(outcome, Refusal):
            refused[wish(entry)] = outcome
        return outcome

    async def _carry_out(self, entry: Waiting, statement: Statement) -> None:
        result = await self._committer.commit(statement)
        for outcome in result.outcomes.values():
            metrics.COMMITS.labels(outcome.value).inc()
        if result.bound:
            self._view.assumptions.written(statement)
            metrics.WAIT_SECONDS.observe(self._now() - entry.since)
            self._reporter.placed(statement)
        else:
            self._undo(entry, statement, result)

    def _undo(self, entry: Waiting, statement: Statement, result: Result) -> None:
        self._view.assumptions.undo(statement, result.existing)
        for bind in statement.binds:
            if result.outcomes[bind.uid] is Outcome.FAILED:
                text = f"Placing the pod failed and is tried again: {result.reason}"
                self._reporter.waits(bind.request, text)
            else:  # the informer reports the pod's end, `Leftovers` removes its claims
                self._reporter.forget(bind.uid)
        if Outcome.FAILED in result.outcomes.values():
            self._backlog.retry(entry.key)
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


def wish(entry: Waiting) -> bytes:
    members = [msgspec.structs.replace(each, uid="", name="", created="", owner=None) for each in entry.group.members]
    return msgspec.json.encode(members)
