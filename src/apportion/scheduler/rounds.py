"""Rounds of decisions: a change wakes one, a burst of changes is one.

Each round decides about every pod that is new or could be helped by what changed, in order, on the
in-memory fleet, and hands each plan to the committer without waiting for it. Those without a place are told
why at the end of the round, when everybody who has one is on it; pods that ask for the same thing get the
same refusal without another search.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from apportion.apis.claims import AllocationClaim
from apportion.cluster import errors
from apportion.core import cycle, sentences
from apportion.core.plans import Plan
from apportion.core.policies import Policy
from apportion.scheduler import metrics
from apportion.scheduler.backlog import Backlog, Stage, Waiting
from apportion.scheduler.commits import Committer, Outcome, Result
from apportion.scheduler.events import Reporter
from apportion.scheduler.storage import VolumeSteps
from apportion.view import adoption, verdicts
from apportion.view.verdicts import Verdict
from apportion.view.view import View

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.01
BREATH_SECONDS = 0.02  # the longest stretch of deciding before informers and commits get a turn
LET_GO_AFTER = 3  # failed attempts after which a pod's claims are given up
IDLE_SECONDS = 30.0


class Rounds:
    """The scheduler's heart: backlog in, plans out."""

    def __init__(
        self,
        view: View,
        volumes: VolumeSteps,
        backlog: Backlog,
        committer: Committer,
        reporter: Reporter,
        policy: Policy,
        *,
        changed: asyncio.Event,
        now: Callable[[], float],
    ) -> None:
        self._view, self._volumes, self._backlog = view, volumes, backlog
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
        hopeless: set[bytes] = set()  # wishes without a place: within a round a fleet hardly empties
        left: list[Waiting] = []
        async for entry in self._with_breath(taken):
            outcome = self._decide(entry, hopeless)
            if outcome is None:
                left.append(entry)
            else:
                self._follow_up(entry, outcome)
        refused: dict[bytes, Verdict] = {}
        async for entry in self._with_breath(left):
            self._follow_up(entry, self._explain(entry, refused))

    async def _with_breath(self, entries: list[Waiting]) -> AsyncIterator[Waiting]:
        """Those that still wait when their turn comes; now and then informers and commits get a turn."""
        breath = time.monotonic() + BREATH_SECONDS
        for entry in entries:
            if self._backlog.get(entry.uid) is entry:
                yield entry
            if time.monotonic() > breath:
                await asyncio.sleep(0)
                breath = time.monotonic() + BREATH_SECONDS

    def _follow_up(self, entry: Waiting, outcome: Plan | Verdict) -> None:
        if isinstance(outcome, Plan):
            metrics.DECISIONS.labels("placed").inc()
            self._view.assumptions.assume(outcome)
            self._backlog.start(entry)
            self._spawn(self._carry_out(entry, outcome))
        else:
            metrics.DECISIONS.labels("refused").inc()
            self._backlog.park(entry, outcome.refusal)
            self._reporter.waits(entry.request, outcome.sentence)

    def _decide(self, entry: Waiting, hopeless: set[bytes]) -> Plan | Verdict | None:
        """None if the pod has no place, which is to be explained later."""
        request = entry.request
        if self._view.fleet.slices_of(entry.uid):
            return self._with_claims(entry, self._view.claims.of_pod(entry.uid))
        if request.share is not None:
            return verdicts.no_sharing(request)
        if entry.wish in hopeless:
            return None
        outcome = cycle.decide(self._view.fleet, [request], self._policy, explained=False)
        if isinstance(outcome, Plan):
            return outcome
        hopeless.add(entry.wish)
        return None

    def _explain(self, entry: Waiting, refused: dict[bytes, Verdict]) -> Plan | Verdict:
        """Why there is no place; a plan after all if one came free while the round took breath."""
        request = entry.request
        known = refused.get(entry.wish)
        if known is not None:
            return Verdict(dataclasses.replace(known.refusal, uid=request.uid, pod=request.key), known.sentence)
        outcome = cycle.decide(self._view.fleet, [request], self._policy)
        if isinstance(outcome, Plan):
            return outcome
        refused[entry.wish] = verdict = Verdict(outcome, sentences.of(outcome))
        return verdict

    def _with_claims(self, entry: Waiting, claims: list[AllocationClaim]) -> Plan | Verdict:
        """The pod has claims from an earlier attempt, of ours or of a leader before us."""
        exhausted = entry.attempts >= LET_GO_AFTER
        outcome = adoption.decide(self._view.fleet, entry.request, claims, self._policy, exhausted=exhausted)
        if isinstance(outcome, Verdict) and outcome.refusal.code == adoption.GIVEN_UP:
            log.info("pod %s: %s", entry.request.key, outcome.refusal.detail)
            self._spawn(self._let_go(entry, claims))
        return outcome

    async def _carry_out(self, entry: Waiting, plan: Plan) -> None:
        volumes = [step for bind in plan.binds for step in self._volumes.of(entry.request, bind.node)]
        result = await self._committer.commit(plan, volumes)
        metrics.COMMITS.labels(result.outcome.value).inc()
        if result.outcome is Outcome.BOUND:
            self._view.assumptions.written(plan)
            metrics.WAIT_SECONDS.observe(self._now() - entry.since)
            self._reporter.placed(entry.request, plan)
        else:
            self._undo(entry, plan, result)

    def _undo(self, entry: Waiting, plan: Plan, result: Result) -> None:
        self._view.assumptions.forget(plan, result.standing)
        if result.outcome is Outcome.FAILED:
            self._backlog.retry(entry.uid)
            self._reporter.waits(entry.request, f"Placing the pod failed and is tried again: {result.reason}")
        else:  # the informer reports the pod's end, `Leftovers` removes its claims
            self._reporter.forget(entry.uid)
        self._changed.set()

    async def _let_go(self, entry: Waiting, claims: list[AllocationClaim]) -> None:
        try:
            await self._committer.let_go(claims)
        except errors.ClusterError as error:
            log.warning("claims of pod %s: %s", entry.request.key, error)
        else:
            if claims:
                return  # their end wakes the pod
        self._backlog.retry(entry.uid)
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
