"""Where questions are decided, in batches.

One round takes all open questions: read the book, strike out what is over, decide one question after the
other, write the new promises with one compare-and-swap, then answer. If another replica was faster the round
counts for nothing and is done again on the new book. So any replica may decide, none leads, and a replica
that dies leaves nothing behind but promises that end by themselves.

A fall is final for its pod, and a view of the cluster is always a little old. So before one is answered the
server is asked whether the pods that stand in the way are really still there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from apportion.admission.fallback import deciding, promises
from apportion.admission.fallback.deciding import WAITING, Case, Outcome, Verdict
from apportion.admission.fallback.promises import Ages, Book
from apportion.admission.fallback.shelf import Shelf
from apportion.admission.fallback.sight import Sight
from apportion.apis import kinds
from apportion.apis.errors import InputError
from apportion.apis.pods import Pod
from apportion.cluster import clock, errors
from apportion.cluster.client import Client

log = logging.getLogger(__name__)

MOST_NODES_ASKED = 8
"""With more nodes than this in question the informers' view is good enough: one of many is free soon anyway."""
CALL_SECONDS = 4.0
AGAIN_SECONDS = 0.2
FAILED = Verdict(Outcome.RETRY, trouble="it cannot be decided now, see the webhook's log")


@dataclass(frozen=True)
class Patience:
    """How long things last."""

    deadline: float = 8.0
    """Below the server's own limit and the webhook's timeout, so that the reason is heard."""
    lifetime: float = 30.0
    """Of a promise whose pod never comes."""


@dataclass(eq=False)
class _Entry:
    case: Case
    answer: asyncio.Future[Verdict]
    until: float

    def give(self, verdict: Verdict) -> None:
        if not self.answer.done():
            self.answer.set_result(verdict)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Desk:
    """Call `ask` as often as you like while `run` runs."""

    def __init__(
        self,
        client: Client,
        sight: Sight,
        shelf: Shelf,
        patience: Patience,
        now: clock.Clock = time.time,
    ) -> None:
        self._client = client
        self._sight = sight
        self._shelf = shelf
        self._patience = patience
        self._now = now
        self._ages = Ages(patience.lifetime, clock.elapsed)
        self._open: dict[_Entry, None] = {}  # in their order; a question that is asked twice stands here twice
        self._wake = asyncio.Event()
        self._next_end: float | None = None
        sight.on_change(self._wake.set)

    async def ask(self, case: Case) -> Verdict:
        loop = asyncio.get_running_loop()
        entry = _Entry(case, loop.create_future(), loop.time() + self._patience.deadline)
        self._open[entry] = None
        self._wake.set()
        try:
            return await entry.answer
        finally:
            del self._open[entry]

    async def run(self) -> None:
        while True:
            await self._pause()
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    await self._round()
            except (errors.ClusterError, TimeoutError) as error:
                log.warning("promises cannot be written now: %s", error or "no answer in time")
                self._shelf.forget()
                await asyncio.sleep(AGAIN_SECONDS)
                self._wake.set()
            except Exception:
                log.exception("a round failed; all who wait are told to ask again")
                self._shelf.forget()
                for entry in self._open:
                    entry.give(FAILED)
            self._give_up()

    async def _pause(self) -> None:
        """Until something may have changed: a question, the cluster, a promise too old, a question too old."""
        if not self._wake.is_set():
            moments = [entry.until - asyncio.get_running_loop().time() for entry in self._open]
            if self._open and self._next_end is not None:
                moments.append(self._next_end)
            try:
                async with asyncio.timeout(max(0.01, min(moments)) if moments else None):
                    await self._wake.wait()
            except TimeoutError:
                pass
        self._wake.clear()

    async def _round(self) -> None:
        entries = [entry for entry in self._open if not entry.answer.done()]
        if not entries:
            return
        self._sight.forget_old()
        book = await self._shelf.read()
        self._ages.look(book)
        if self._lags(book):
            await self._catch_up(book)
        before, book = book, self._tidied(book)
        verdicts = []
        for entry in entries:
            verdict, book = self._attempt(entry, book)
            verdicts.append(verdict)
        falls = [(e.case, v) for e, v in zip(entries, verdicts, strict=True) if _falls(v)]
        if falls and await self._anyone_gone(falls):
            self._wake.set()
            return
        if {promise.id for promise in book.promises} - {promise.id for promise in before.promises}:
            try:
                await self._shelf.write(book)
            except errors.Conflict:
                self._wake.set()
                return
            self._ages.look(book)
        self._next_end = self._ages.next_end(book)
        for entry, verdict in zip(entries, verdicts, strict=True):
            if verdict.outcome is not Outcome.WAIT:
                entry.give(verdict)

    def _tidied(self, book: Book) -> Book:
        book = promises.tidied(book, self._sight.sightings, self._ages)
        self._sight.standing.set_promises(book.promises)
        self._sight.standing.settle()
        return book

    def _attempt(self, entry: _Entry, book: Book) -> tuple[Verdict, Book]:
        """Decide; whatever goes wrong is the matter of this one question, and the fleet is left as it was."""
        fleet = self._sight.standing.fleet
        mark = fleet.checkpoint()
        try:
            decided = self._decide(entry.case, book)
        except InputError as error:  # lower tiers are read only when they are needed
            fleet.rollback(mark)
            entry.fail(error)
            return WAITING, book
        except Exception:
            fleet.rollback(mark)
            log.exception("question %s cannot be decided", entry.case.id)
            entry.give(FAILED)
            return WAITING, book
        fleet.release(mark)
        return decided

    def _decide(self, case: Case, book: Book) -> tuple[Verdict, Book]:
        given = book.of(case.id)
        if given is not None:  # written before, but we never heard that it was
            return Verdict(Outcome.PLACED, given.steps, given, given.node), book
        homes = self._sight.standing.fleet.pod_nodes
        case.stale = {uid: node for uid, node in case.stale.items() if homes.get(uid) == node}
        if case.stale or book.full:
            return WAITING, book
        verdict = deciding.judge(self._sight.standing, case, self._now())
        if verdict.promise is not None:
            book = promises.added(book, verdict.promise, self._sight.sightings)
        return verdict, book

    def _lags(self, book: Book) -> bool:
        return self._sight.version < self._ages.demand(book)

    async def _catch_up(self, book: Book) -> None:
        """Wait until our view of the pods is as new as the one on which a promise was struck out."""
        while self._lags(book):
            self._wake.clear()
            await self._wake.wait()
        self._wake.set()

    async def _anyone_gone(self, falls: Sequence[tuple[Case, Verdict]]) -> bool:
        """Mark cases that pods stand in the way of which the server no longer has.

        While it is asked our own view moves on, so what is marked is the pod on the node where the verdict saw it:
        a pod that has left since is no reason to wait, but the verdict no longer counts.
        """
        questions = [
            (case, *self._sight.standing.holders(case.request(steps), MOST_NODES_ASKED))
            for case, verdict in falls
            for steps in range(verdict.steps + (verdict.outcome is not Outcome.PLACED))
        ]
        asked = dict.fromkeys(node for _, nodes, holders in questions if holders for node in ("", *nodes))
        present = {node: await self._present(node) for node in asked}
        found = False
        for case, nodes, holders in questions:
            there = set().union(*(present.get(node, ()) for node in ("", *nodes)))
            gone = {uid: node for uid, node in holders.items() if uid not in there}
            case.stale |= gone
            found = found or bool(gone)
        return found

    async def _present(self, node: str) -> set[str]:
        """Pods of a node that still hold something, as the server knows them; of no node: those not bound yet."""
        listing = await self._client.list(kinds.PODS, fields=f"spec.nodeName={node}", into=Pod)
        return {pod.metadata.uid for pod in listing.items if not pod.terminal}

    def _give_up(self) -> None:
        now = asyncio.get_running_loop().time()
        for entry in self._open:
            if entry.until <= now:
                entry.give(Verdict(Outcome.RETRY))


def _falls(verdict: Verdict) -> bool:
    return verdict.outcome in {Outcome.PEND, Outcome.REJECT} or verdict.steps > 0
