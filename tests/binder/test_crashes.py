"""Killed at every call that it makes to the API, before the server acted and after: nothing is lost or sold twice.

Each story is told once to count its calls. Then it is told again and again, each time with a binder that dies at the
n-th call; a successor finishes the work, and the end must always be the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest

from apportion.cluster import errors
from tests.binder.cluster import MIB, OTHER, SharingCluster, binding
from tests.scheduler.cluster import until
from tests.scheduler.cut_connections import Proxy, cuts_of

SAMPLE = 4  # cuts of each kind in CI
NODE = "n1"


@dataclass(frozen=True)
class Story:
    """`begin` writes what the scheduler and users write; `finished` waits for the end and says what must be true."""

    begin: Callable[[SharingCluster], Awaitable[None]]
    finished: Callable[[SharingCluster], Awaitable[None]]


async def first(cluster: SharingCluster) -> None:
    await cluster.request(await cluster.pod("a"), cluster.gpus[NODE][0])


async def first_runs(cluster: SharingCluster) -> None:
    await cluster.running("a")
    await cluster.one_reservation(sharers=1)


async def join(cluster: SharingCluster) -> None:
    gpu = cluster.gpus[NODE][0]
    groups = await cluster.request(await cluster.pod("a"), gpu)
    await cluster.request(await cluster.pod("b", OTHER, memory=MIB // 4), gpu, groups=groups)
    await cluster.request(await cluster.pod("c", fraction="0.25"), gpu, groups=groups)


async def all_joined(cluster: SharingCluster) -> None:
    await cluster.running("a", "c")
    await cluster.running("b", namespace=OTHER)
    await cluster.one_reservation(sharers=3)


async def several(cluster: SharingCluster) -> None:
    await cluster.request(await cluster.pod("a", devices=3), cluster.gpus[NODE])


async def on_several(cluster: SharingCluster) -> None:
    await cluster.running("a")
    assert len(await cluster.reservations()) == 3


async def wrong_device(cluster: SharingCluster) -> None:
    """The last GPU of the node is handed out first, and it is small."""
    cluster.kubelet.devices[NODE] = list(reversed(cluster.gpus[NODE]))
    gpu = cluster.gpus[NODE][0]
    await cluster.request(await cluster.pod("a", memory=MIB // 2), gpu)
    await cluster.request(await cluster.pod("b", fraction="0.5"), cluster.gpus[NODE][1])


async def some_do_not_fit(cluster: SharingCluster) -> None:
    """Which of them gets the small GPU is chance; half of it is fine for `b`."""
    await cluster.running("b")

    async def decided() -> bool:
        pod = await cluster.get("a")
        return pod.status.phase == "Running" or bool(await cluster.failed("a", within=0.1))

    async def surely() -> bool:
        try:
            return await decided()
        except AssertionError:
            return False

    await until(surely)
    runs = (await cluster.get("a")).status.phase == "Running"

    async def reservations() -> bool:
        return len(await cluster.reservations()) == 1 + runs

    await until(reservations)


async def gone(cluster: SharingCluster) -> None:
    """The first of two sharers is deleted before the reservation has its GPU."""
    cluster.kubelet.silent.add(NODE)
    gpu = cluster.gpus[NODE][0]
    groups = await cluster.request(await cluster.pod("a"), gpu)
    await cluster.request(await cluster.pod("b"), gpu, groups=groups)


async def only_one_is_left(cluster: SharingCluster) -> None:
    if cluster.kubelet.silent:
        with suppress(errors.NotFound):  # it is gone already if the binder died just after
            await cluster.get("a")
            await until(cluster.reservations)
            await cluster.delete("a")
        cluster.kubelet.silent.clear()
        cluster.kubelet.wake()
    await cluster.running("b")
    await cluster.one_reservation(sharers=1)


STORIES = {
    "first sharer": Story(first, first_runs),
    "join": Story(join, all_joined),
    "several devices": Story(several, on_several),
    "wrong device": Story(wrong_device, some_do_not_fit),
    "sharer gone before bind": Story(gone, only_one_is_left),
}


async def end(cluster: SharingCluster) -> None:
    await cluster.check()
    for name, namespace in (("a", "default"), ("b", "default"), ("b", OTHER), ("c", "default")):
        with suppress(errors.NotFound):  # not every story has all of them
            await cluster.delete(name, namespace)
    await cluster.empty()
    assert not cluster.kubelet.problems, cluster.kubelet.problems


async def reset(cluster: SharingCluster) -> None:
    cluster.kubelet.silent.clear()
    cluster.kubelet.devices[NODE] = list(cluster.gpus[NODE])
    await cluster.clear()


async def told_once(cluster: SharingCluster, story: Story) -> list[str]:
    """The calls of an undisturbed story."""
    await story.begin(cluster)
    proxy = Proxy()
    async with binding(cluster, cluster.api.wire(proxy)):
        await story.finished(cluster)
        await end(cluster)
    return proxy.calls


async def told_with_a_crash(cluster: SharingCluster, story: Story, cut_at: int, *, after: bool) -> bool:
    """False if the story was over before the n-th call."""
    await story.begin(cluster)
    first, second = Proxy(cut_at, after), Proxy()
    async with binding(cluster, cluster.api.wire(first)):
        over = asyncio.create_task(whole(cluster, story))
        died = asyncio.create_task(first.dead.wait())
        await asyncio.wait({over, died}, return_when=asyncio.FIRST_COMPLETED)
        ended = over.done() and not over.cancelled() and over.exception() is None
        over.cancel()
        died.cancel()
        await asyncio.gather(over, died, return_exceptions=True)
        first.dead.set()
    await cluster.end_lease()
    async with binding(cluster, cluster.api.wire(second)):
        if not ended:
            with suppress(errors.NotFound):  # the cut came while the story ended
                await story.finished(cluster)
        await end(cluster)
    bindings: Counter[str] = first.bindings + second.bindings
    assert all(count == 1 for count in bindings.values()), bindings
    return len(first.calls) > cut_at


async def whole(cluster: SharingCluster, story: Story) -> None:
    await story.finished(cluster)
    await end(cluster)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", STORIES)
async def test_g11_killed_at_every_call_it_makes_it_loses_and_oversells_nothing(
    shared: SharingCluster, name: str
) -> None:
    story = STORIES[name]
    await shared.node(NODE, gpus=3, memory=(MIB, MIB, MIB // 4))
    calls = await told_once(shared, story)
    await reset(shared)
    cuts = cuts_of(calls, writes=SAMPLE, any_calls=SAMPLE // 2)
    reached = 0
    for number, after in cuts:
        try:
            reached += await told_with_a_crash(shared, story, number, after=after)
        except BaseException as error:
            error.add_note(f"cut at call {number} ({calls[number]}), {'after' if after else 'before'} the server acted")
            raise
        await reset(shared)
    print(f"{name}: {len(cuts)} stories, {reached} of them cut, {len(calls)} calls each")
    assert reached >= len(cuts) // 4
