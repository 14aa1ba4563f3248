"""Scheduler or binder killed at every call that they make to the API: nothing is lost, left over, or sold twice.

Each story is told once to count the calls of one of the two. Then it is told again and again, each time with one that
dies at the n-th call while the other lives on; a successor finishes the work, and the end must always be the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import pytest

from apportion.cluster import errors
from tests.binder.cluster import MIB, SharingCluster, binding
from tests.scheduler.cluster import Fault, scheduling
from tests.scheduler.cut_connections import FULL, Proxy, cuts_of
from tests.sharing.observer import ShareObserver
from tests.sharing.stories import MEMORY, NODE, STORIES, Story, end, reset

SAMPLE = 3  # cuts of each kind in CI
SCHEDULER, BINDER = "scheduler", "binder"
Plane = Callable[[SharingCluster, Fault], AbstractAsyncContextManager[Any]]

PLANES: dict[str, Plane] = {
    SCHEDULER: lambda cluster, fault: scheduling(cluster.api, cluster.api.wire(fault)),
    BINDER: lambda cluster, fault: binding(cluster, cluster.api.wire(fault)),
}
OTHERS = {SCHEDULER: BINDER, BINDER: SCHEDULER}


async def whole(cluster: SharingCluster, story: Story) -> None:
    await story.finished(cluster)
    await end(cluster)


async def told_once(cluster: SharingCluster, story: Story, victim: str) -> list[str]:
    """The calls of an undisturbed story."""
    await story.begin(cluster)
    proxy = Proxy()
    async with PLANES[OTHERS[victim]](cluster, Proxy()), PLANES[victim](cluster, proxy):
        await whole(cluster, story)
    return proxy.calls


async def told_with_a_crash(cluster: SharingCluster, story: Story, victim: str, cut_at: int, *, after: bool) -> bool:
    """False if the story was over before the n-th call."""
    await story.begin(cluster)
    first, second, other = Proxy(cut_at, after), Proxy(), Proxy()
    async with PLANES[OTHERS[victim]](cluster, other):
        async with PLANES[victim](cluster, first):
            ended = await until_death(first, whole(cluster, story))
        await (cluster.api if victim == SCHEDULER else cluster).end_lease()
        async with PLANES[victim](cluster, second):
            if not ended:
                with suppress(errors.NotFound):  # the cut came while the story ended
                    await story.finished(cluster)
            await end(cluster)
    bindings = first.bindings + second.bindings + other.bindings
    assert bindings or any(call.endswith("/binding") for call in first.unanswered)
    assert all(count == 1 for count in bindings.values()), bindings
    return len(first.calls) > cut_at


async def until_death(proxy: Proxy, story: Any) -> bool:
    """True if the story ended before the process died."""
    over, died = asyncio.create_task(story), asyncio.create_task(proxy.dead.wait())
    await asyncio.wait({over, died}, return_when=asyncio.FIRST_COMPLETED)
    if over.done() and not proxy.dead.is_set():
        over.result()
    ended = over.done() and over.exception() is None
    over.cancel()
    died.cancel()
    await asyncio.gather(over, died, return_exceptions=True)
    proxy.dead.set()
    return ended


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("victim", PLANES)
@pytest.mark.parametrize("name", STORIES)
async def test_g11_killed_at_every_call_scheduler_and_binder_lose_and_oversell_nothing(
    shared: SharingCluster, name: str, victim: str
) -> None:
    await shared.node(NODE, gpus=len(MEMORY), memory=MEMORY)
    await killed_at_every_call(shared, name, victim)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("victim", PLANES)
@pytest.mark.parametrize("name", [name for name in STORIES if name != "wrong device"] if FULL else ["join"])
async def test_g11_g10_nor_do_they_on_nodes_without_an_agent(shared: SharingCluster, name: str, victim: str) -> None:
    await shared.node(NODE, gpus=len(MEMORY), reported=False, label=str(MIB))
    await killed_at_every_call(shared, name, victim)


async def killed_at_every_call(shared: SharingCluster, name: str, victim: str) -> None:
    story = STORIES[name]
    await reset(shared)
    async with ShareObserver(shared.client, shared.kubelet.memory).watching() as observer:
        calls = await told_once(shared, story, victim)
        await reset(shared)
        cuts = cuts_of(calls, writes=SAMPLE, any_calls=SAMPLE // 3)
        reached = 0
        for number, after in cuts:
            try:
                reached += await told_with_a_crash(shared, story, victim, number, after=after)
                assert not observer.violations, observer.violations
            except BaseException as error:
                when = "after" if after else "before"
                error.add_note(f"{victim} cut at call {number} ({calls[number]}), {when} the server acted")
                raise
            await reset(shared)
        print(f"{name}, {victim}: {len(cuts)} stories, {reached} of them cut, {len(calls)} calls each")
        assert reached >= len(cuts) // 4
        assert observer.bound > len(cuts)
