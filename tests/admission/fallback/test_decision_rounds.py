"""Decision rounds: a request that fails, or is sent twice, does not affect others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from apportion.admission.cluster_knowledge import ClusterKnowledge
from apportion.admission.fallback.deciding import Case, FallbackOutcome
from apportion.admission.fallback.decision_rounds import DecisionRounds
from apportion.admission.fallback.promise_store import PromiseStore
from apportion.admission.fallback.tiers import FallbackOptions
from apportion.apis import names
from apportion.apis.installation import Installation
from apportion.apis.request import Request
from apportion.core.catalog import Catalog
from apportion.view.informers import Informers
from apportion.view.view import View
from tests.admission.fallback.cluster import NAMESPACE, PATIENCE, FallbackCluster, fallback_cluster
from tests.builders import pods
from tests.environments.waiting import eventually

TIERS = ("2g.20gb", "1g.10gb")


@dataclass
class At:
    """Rounds at work, and what they rest on."""

    cluster: FallbackCluster
    rounds: DecisionRounds
    store: PromiseStore
    work: asyncio.Task[None]


@asynccontextmanager
async def at_work() -> AsyncIterator[At]:
    async with fallback_cluster(replicas=0) as it:
        client = it.account()
        knowledge = ClusterKnowledge(client, catalog=Catalog(), slicing=False, namespace=Installation.namespace)
        view = View(volumes=False)
        informers = Informers(
            client,
            view,
            Installation(),
            nodes=knowledge.nodes,
            namespaces=knowledge.namespaces,
            accelerators=knowledge.accelerators,
        )
        store = PromiseStore(client, namespace=NAMESPACE, name=names.FALLBACK_PROMISES)
        rounds = DecisionRounds(client, view, informers.pods, store, PATIENCE)
        tasks = [asyncio.create_task(each.run()) for each in (*knowledge.informers, informers.pods)]
        tasks.append(asyncio.create_task(rounds.run()))
        try:
            await eventually(lambda: knowledge.synced() is True and informers.pods.has_synced)
            yield At(it, rounds, store, tasks[-1])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=10)


def case(identity: str, *, broken: bool = False) -> Case:
    def request(steps: int) -> Request:
        if broken:
            raise ZeroDivisionError
        return pods.pod_request(
            identity, uid=f"review/{identity}", mig={TIERS[steps]: 1}, scheduler=names.DEFAULT_SCHEDULER
        )

    return Case(id=identity, namespace="default", request=request, steps=1, options=FallbackOptions(TIERS))


async def test_f04_a_request_that_fails_gets_retry_and_all_others_are_answered() -> None:
    async with at_work() as at:
        first, bad, last = await asyncio.gather(
            at.rounds.ask(case("a")), at.rounds.ask(case("b", broken=True)), at.rounds.ask(case("c"))
        )
        assert [first.outcome, last.outcome] == [FallbackOutcome.PLACED, FallbackOutcome.PLACED]
        assert bad.outcome is FallbackOutcome.RETRY
        assert "see the log of the webhook" in bad.trouble
        assert not at.work.done()
        assert {each["id"] for each in (await at.cluster.stored_promises())["promises"]} == {"a", "c"}


async def test_f04_a_round_that_fails_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async with at_work() as at:

        async def read() -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as patched:
            patched.setattr(at.store, "read", read)
            decisions = await asyncio.gather(at.rounds.ask(case("a")), at.rounds.ask(case("b")))
            assert {decision.outcome for decision in decisions} == {FallbackOutcome.RETRY}
        assert (await at.rounds.ask(case("a"))).outcome is FallbackOutcome.PLACED


async def test_f04_one_review_sent_twice_at_once_is_answered_twice_and_promised_once() -> None:
    async with at_work() as at:
        decisions = await asyncio.gather(at.rounds.ask(case("same")), at.rounds.ask(case("same")))
        assert [decision.outcome for decision in decisions] == [FallbackOutcome.PLACED] * 2
        assert len((await at.cluster.stored_promises())["promises"]) == 1
