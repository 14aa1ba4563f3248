"""Decides fallback requests in rounds.

A round takes all open requests: it reads the stored promises, removes those that have ended, decides one request after
the other, writes the new promises with one compare-and-swap, and answers. If another replica was faster, the round
is repeated with the new promises. So every replica can decide without a leader, and a replica that dies leaves
nothing behind but promises that expire.

A fallback is final for its pod, and a cache is always a little behind. So before a fallback is answered, the API
server is asked whether the pods that hold the devices still exist.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

from apportion.admission.fallback import deciding, promises
from apportion.admission.fallback.deciding import WAITING, Case, Decision, FallbackOutcome
from apportion.admission.fallback.occupancy import Occupancy
from apportion.admission.fallback.promise_store import PromiseStore
from apportion.admission.fallback.promises import Ages, Promise, StoredPromises
from apportion.admission.fallback.recent_pods import RecentPods
from apportion.apis import kinds
from apportion.apis.errors import InputError
from apportion.apis.identities import NO_NODE, NodeName, PodUID
from apportion.apis.pods import Pod
from apportion.cluster import clock, errors
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.view.requests import ended
from apportion.view.view import View

log = logging.getLogger(__name__)

MOST_NODES_ASKED = 8
"""With more nodes than this in question the informers' view is good enough: one of many is free soon anyway."""
CALL_SECONDS = 4.0
AGAIN_SECONDS = 0.2
MOST_AT_ONCE = 100
"""Requests of one round. Nothing else is done in the meantime."""
MOST_OPEN = 300
CROWDED = Decision(FallbackOutcome.RETRY, trouble="too many pods wait for a decision, most of them in this namespace")
FAILED = Decision(FallbackOutcome.RETRY, trouble="no decision is possible at present, see the log of the webhook")


@dataclass(frozen=True)
class Patience:
    """Time limits in seconds."""

    deadline: float = 8.0
    """Below the server's own limit and the webhook's timeout, so that the caller gets the reason."""
    lifetime: float = 30.0
    """Of a promise whose pod is never created."""
    shared: float = 5.0
    """How long such a promise counts for other namespaces than its own (T03)."""
    briefly: float = 1.0
    """The same for a request that has waited that long already."""


@dataclass(eq=False)
class _Entry:
    case: Case
    answer: asyncio.Future[Decision]
    since: float
    until: float
    cycle: int = 0

    def give(self, decision: Decision) -> None:
        if not self.answer.done():
            self.answer.set_result(decision)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class _Doubt(NamedTuple):
    """A decision against a case that rests on these pods, by their nodes."""

    case: Case
    nodes: list[NodeName]
    holders: dict[PodUID, NodeName]


class DecisionRounds:
    """Call `ask` as often as you like while `run` runs. `pods` is the informer that feeds the view."""

    def __init__(
        self,
        client: Client,
        view: View,
        pods: Informer[Pod],
        store: PromiseStore,
        patience: Patience,
        now: clock.Clock = time.time,
        used_up: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`used_up`: whether the quota of a namespace allows no more pods."""
        self._client = client
        self._pods = pods
        self._occupancy = Occupancy(view)
        self._recent = RecentPods()
        self._store = store
        self._patience = patience
        self._now = now
        self._used_up = used_up
        self._ages = Ages(patience.lifetime, clock.elapsed, shared=patience.shared)
        self._open: dict[_Entry, None] = {}  # in their order; a question that is asked twice is here twice
        self._cycle = 1
        self._unredeemed: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._next_end: float | None = None
        view.changes.on_change(self._wake.set)
        pods.on_change(self._pod_changed)

    async def ask(self, case: Case) -> Decision:
        loop = asyncio.get_running_loop()
        now = loop.time()
        entry = _Entry(case, loop.create_future(), now, now + self._patience.deadline)
        self._make_room()
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
                log.warning("cannot write promises: %s", error or "timeout")
                self._store.forget()
                await asyncio.sleep(AGAIN_SECONDS)
                self._wake.set()
            except Exception:
                log.exception("decision round failed; all waiting requests are asked to retry")
                self._store.forget()
                for entry in self._open:
                    entry.give(FAILED)
            self._give_up()

    async def _pause(self) -> None:
        """Until something may have changed: a question, the cluster, a promise too old, a question too old."""
        if not self._wake.is_set():
            now = asyncio.get_running_loop().time()
            moments = [entry.until - now for entry in self._open]
            moments += [late for entry in self._open if (late := entry.since + self._patience.shared - now) > 0]
            if self._open and self._next_end is not None:
                moments.append(self._next_end)
            try:
                async with asyncio.timeout(max(0.01, min(moments)) if moments else None):
                    await self._wake.wait()
            except TimeoutError:
                pass
        self._wake.clear()

    async def _round(self) -> None:
        entries = self._next_entries()
        if not entries:
            return
        self._recent.forget_old()
        stored = await self._store.read()
        self._ages.look(stored)
        if self._lags(stored):
            await self._catch_up(stored)
        before, self._unredeemed = stored, stored.unredeemed
        decisions, doubts, stored = self._decide_all(
            entries, promises.tidied(stored, self._recent.sightings, self._ages)
        )
        if await self._anyone_gone(doubts):
            self._wake.set()
            return
        if stored.unredeemed != before.unredeemed or (
            {promise.id for promise in stored.promises} - {promise.id for promise in before.promises}
        ):
            try:
                await self._store.write(stored)
            except errors.Conflict:
                self._wake.set()
                return
            self._ages.look(stored)
        self._next_end = self._ages.next_end(stored)
        for entry, decision in zip(entries, decisions, strict=True):
            if decision.outcome is not FallbackOutcome.WAIT:
                entry.give(decision)

    def _next_entries(self) -> list[_Entry]:
        """Those of a round: not too many, and each namespace in turn, so that none takes what another waits for."""
        waiting = [entry for entry in self._open if not entry.answer.done()]
        due = [entry for entry in waiting if entry.cycle < self._cycle]
        if not due:
            self._cycle += 1
            due = waiting
        by_namespace: dict[str, list[_Entry]] = {}
        for entry in due:
            by_namespace.setdefault(entry.case.namespace, []).append(entry)
        turns = itertools.chain.from_iterable(itertools.zip_longest(*by_namespace.values()))
        chosen = list(itertools.islice((entry for entry in turns if entry is not None), MOST_AT_ONCE))
        for entry in chosen:
            entry.cycle = self._cycle
        if len(chosen) < len(due):
            self._wake.set()
        return chosen

    def _make_room(self) -> None:
        """With too many open requests, the namespace that has the most is asked to retry."""
        waiting = [entry for entry in self._open if not entry.answer.done()]
        if len(waiting) >= MOST_OPEN:
            counts = Counter(entry.case.namespace for entry in waiting)
            largest = max(counts, key=lambda namespace: counts[namespace])
            next(entry for entry in waiting if entry.case.namespace == largest).give(CROWDED)

    def _decide_all(
        self, entries: Sequence[_Entry], stored: StoredPromises
    ) -> tuple[list[Decision], list[_Doubt], StoredPromises]:
        """One decision after the other on the fleet with all assumptions, which are taken back at the end."""
        decisions = []
        with self._occupancy.assumed(promise for promise in stored.promises if not promise.private):
            for namespace, of_namespace in itertools.groupby(entries, key=lambda entry: entry.case.namespace):
                private = namespace in stored.unredeemed or self._used_up(namespace)
                own = _private_promises(stored, namespace) if private else ()
                with self._occupancy.seen_by(own) if private else nullcontext():
                    for entry in of_namespace:
                        decision, stored = self._attempt(entry, stored, private=private)
                        decisions.append(decision)
            doubts = [
                _Doubt(entry.case, *self._occupancy.holders(entry.case.request(steps), MOST_NODES_ASKED))
                for entry, decision in zip(entries, decisions, strict=True)
                if _falls(decision)
                for steps in range(decision.steps + (decision.outcome is not FallbackOutcome.PLACED))
            ]
        return decisions, doubts, stored

    def _attempt(self, entry: _Entry, stored: StoredPromises, *, private: bool) -> tuple[Decision, StoredPromises]:
        """Decide; an error concerns only this request, and the fleet is left as it was."""
        fleet = self._occupancy.fleet
        mark = fleet.checkpoint()
        try:
            decided = self._decide(entry, stored, private=private)
        except InputError as error:  # lower tiers are read only when they are needed
            fleet.rollback(mark)
            entry.fail(error)
            return WAITING, stored
        except Exception:
            fleet.rollback(mark)
            log.exception("cannot decide request %s", entry.case.id)
            entry.give(FAILED)
            return WAITING, stored
        fleet.release(mark)
        return decided

    def _decide(self, entry: _Entry, stored: StoredPromises, *, private: bool) -> tuple[Decision, StoredPromises]:
        """`private`: what is promised counts for the namespace of the pod only, and its promises are in the fleet."""
        case = entry.case
        given = stored.of(case.id)
        if given is not None:  # written before, but the answer was lost
            return Decision(FallbackOutcome.PLACED, given.steps, given, given.node), stored
        homes = self._occupancy.fleet.pod_nodes
        case.stale = {uid: node for uid, node in case.stale.items() if homes.get(uid) == node}
        if case.stale or stored.full_for(case.namespace):
            return WAITING, stored
        own = () if private else _private_promises(stored, case.namespace)
        ignored = self._ignored(entry, stored)
        with self._occupancy.seen_by(own, ignored) if own or ignored else nullcontext():
            decision = deciding.judge(self._occupancy, case, self._now(), private=private)
        if decision.promise is not None:
            stored = promises.added(stored, decision.promise, self._recent.sightings)
            self._occupancy.promise(decision.promise)
        return decision, stored

    def _ignored(self, entry: _Entry, stored: StoredPromises) -> list[Promise]:
        """Promises of other namespaces that a request no longer waits for, because it has waited long enough."""
        if asyncio.get_running_loop().time() - entry.since < self._patience.shared:
            return []
        others = (each for each in stored.promises if not each.private and each.namespace != entry.case.namespace)
        return [each for each in others if self._ages.of(each) > self._patience.briefly]

    def _lags(self, stored: StoredPromises) -> bool:
        version = self._pods.version
        return (int(version) if version.isdecimal() else 0) < self._ages.demand(stored)

    async def _catch_up(self, stored: StoredPromises) -> None:
        """Wait until our cache of pods is as new as the one with which a promise was removed."""
        while self._lags(stored):
            self._wake.clear()
            await self._wake.wait()
        self._wake.set()

    async def _anyone_gone(self, doubts: Sequence[_Doubt]) -> bool:
        """Mark cases whose devices are held by pods that no longer exist on the server.

        While it is asked our own view moves on, so what is marked is the pod on the node where the decision saw it:
        a pod that has left since is no reason to wait, but the decision no longer counts.
        """
        asked = dict.fromkeys(node for doubt in doubts if doubt.holders for node in (NO_NODE, *doubt.nodes))
        present = {node: await self._present(node) for node in asked}
        found = False
        for case, nodes, holders in doubts:
            there = set[PodUID]().union(*(present.get(node, ()) for node in (NO_NODE, *nodes)))
            gone = {uid: node for uid, node in holders.items() if uid not in there}
            case.stale |= gone
            found = found or bool(gone)
        return found

    async def _present(self, node: NodeName) -> set[PodUID]:
        """Pods of a node that still hold something, as the server knows them; of no node: those not bound yet."""
        listing = await self._client.list(kinds.PODS, fields=f"spec.nodeName={node}", into=Pod)
        return {PodUID(pod.metadata.uid) for pod in listing.items if not ended(pod)}

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        self._recent.changed(old, new)
        self._wake.set()

    def _give_up(self) -> None:
        now = asyncio.get_running_loop().time()
        for entry in self._open:
            if entry.until <= now:
                entry.give(Decision(FallbackOutcome.RETRY, trouble=self._trouble(entry.case.namespace)))

    def _trouble(self, namespace: str) -> str:
        count = self._unredeemed.get(namespace, 0)
        if not count:
            return ""
        return (
            f"devices are promised to pods of namespace {namespace}, of which {count} were reviewed and not created; "
            "check quotas and other admission webhooks, and if nobody created such pods, who can reach this webhook"
        )


def _private_promises(stored: StoredPromises, namespace: str) -> list[Promise]:
    return [promise for promise in stored.promises if promise.private and promise.namespace == namespace]


def _falls(decision: Decision) -> bool:
    return decision.outcome in {FallbackOutcome.PEND, FallbackOutcome.REJECT} or decision.steps > 0
