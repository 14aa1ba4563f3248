"""Where questions are decided: one that goes wrong, or is asked twice, is nobody else's trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from apportion.admission.fallback.deciding import Case, Outcome
from apportion.admission.fallback.desk import Desk
from apportion.admission.fallback.shelf import Shelf
from apportion.admission.fallback.sight import Sight
from apportion.admission.fallback.standing import request_of
from apportion.admission.fallback.tiers import Wishes
from apportion.admission.knowledge import Knowledge
from apportion.apis import names
from apportion.apis.pods import Pod
from apportion.apis.request import Request
from tests.fallback.ground import NAMESPACE, PATIENCE, Ground, eventually, ground, pod

TIERS = ("2g.20gb", "1g.10gb")


@dataclass
class At:
    """A desk at work, and what it rests on."""

    ground: Ground
    desk: Desk
    shelf: Shelf
    work: asyncio.Task[None]


@asynccontextmanager
async def at_work() -> AsyncIterator[At]:
    async with ground(replicas=0) as it:
        client = it.account()
        knowledge = Knowledge(client, catalogued=(), slicing=False)
        sight = Sight(
            client, nodes=knowledge.nodes, namespaces=knowledge.namespaces, accelerators=knowledge.accelerators
        )
        shelf = Shelf(client, namespace=NAMESPACE, name=names.FALLBACK_PROMISES)
        desk = Desk(client, sight, shelf, PATIENCE)
        tasks = [asyncio.create_task(each.run()) for each in (*knowledge.informers, *sight.informers)]
        tasks.append(asyncio.create_task(desk.run()))
        try:
            await eventually(lambda: knowledge.synced() is True and sight.synced() is True)
            yield At(it, desk, shelf, tasks[-1])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=10)


def case(identity: str, *, broken: bool = False) -> Case:
    def request(steps: int) -> Request:
        if broken:
            raise ZeroDivisionError
        body: dict[str, Any] = pod({f"nvidia.com/mig-{TIERS[steps]}": 1}, name=identity)
        body["metadata"] |= {"namespace": "default", "uid": f"review/{identity}"}
        return request_of(msgspec.convert(body, Pod))

    return Case(id=identity, request=request, steps=1, wishes=Wishes(TIERS))


async def test_f04_one_question_that_fails_is_told_to_ask_again_and_all_others_are_answered() -> None:
    async with at_work() as at:
        first, bad, last = await asyncio.gather(
            at.desk.ask(case("a")), at.desk.ask(case("b", broken=True)), at.desk.ask(case("c"))
        )
        assert [first.outcome, last.outcome] == [Outcome.PLACED, Outcome.PLACED]
        assert bad.outcome is Outcome.RETRY
        assert "see the webhook's log" in bad.trouble
        assert not at.work.done()
        assert {each["id"] for each in (await at.ground.book())["promises"]} == {"a", "c"}


async def test_f04_a_round_that_fails_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async with at_work() as at:

        async def read() -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as patched:
            patched.setattr(at.shelf, "read", read)
            verdicts = await asyncio.gather(at.desk.ask(case("a")), at.desk.ask(case("b")))
            assert {verdict.outcome for verdict in verdicts} == {Outcome.RETRY}
        assert (await at.desk.ask(case("a"))).outcome is Outcome.PLACED


async def test_f04_one_review_sent_twice_at_once_is_answered_twice_and_promised_once() -> None:
    async with at_work() as at:
        verdicts = await asyncio.gather(at.desk.ask(case("same")), at.desk.ask(case("same")))
        assert [verdict.outcome for verdict in verdicts] == [Outcome.PLACED] * 2
        assert len((await at.ground.book())["promises"]) == 1
