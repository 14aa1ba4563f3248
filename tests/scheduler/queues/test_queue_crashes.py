"""Killed at every call of an allocation, gang, reclaim, preemption and move: nobody is evicted for nobody, or twice.

Each story is told once to learn its calls, and then with a scheduler that dies at the n-th call of a kind (the second
eviction, say), before the server acted or after. Evicted pods end, and their controllers make them anew, also while
nobody leads.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from apportion.apis import names
from apportion.cluster import errors
from apportion.cluster.transport import HttpRequest, Response
from tests.scheduler.cluster import ApiCluster, scheduling, until
from tests.scheduler.queues.workloads import Life, clear, gpu_node, gpu_pod, pod_group, pods, queue, running

FULL = os.environ.get("APPORTION_SOAK") == "1"
SAMPLE = 3  # cuts of each story in CI
SUBRESOURCES = ("eviction", "binding", "status")
Cut = tuple[str, int]  # the kind of call, and which of its calls


def kind_of(request: HttpRequest) -> str:
    *_, plural, name, last = ["", "", *request.path.split("/")]
    if last not in SUBRESOURCES:
        return f"{request.method} {last if request.method == 'POST' else name}"
    return f"{request.method} {plural} {last}"


@dataclass
class Proxy:
    """Counts calls by kind, and cuts the line for good at one of them."""

    cut: Cut | None = None
    after: bool = False
    calls: Counter[str] = field(default_factory=Counter)
    dead: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, request: HttpRequest, onwards: Callable[[], Awaitable[Response]]) -> Response:
        if self.dead.is_set():
            raise errors.Unreachable("this process is dead")
        kind = kind_of(request)
        self.calls[kind] += 1
        if (kind, self.calls[kind]) != self.cut:
            return await onwards()
        if self.after:
            await onwards()
        self.dead.set()
        raise errors.Unreachable("cut")


@dataclass(frozen=True)
class Story:
    """`takers` are bound in the end, and `victims` pods were evicted for them, most of which are made anew."""

    begin: Callable[[ApiCluster], Awaitable[None]]
    arrive: Callable[[ApiCluster], Awaitable[None]]
    takers: tuple[str, ...]
    victims: int = 0
    owned: bool = True  # by controllers: the victims
    successors: int = 0  # pods made anew that are bound in the end
    for_place: bool = True  # otherwise for what the queue may use


async def two_nodes(cluster: ApiCluster) -> None:
    await queue(cluster, "a", quota=0)
    await queue(cluster, "b", quota=4)
    for node in ("n1", "n2"):
        await gpu_node(cluster, node, 2)


async def full(cluster: ApiCluster) -> None:
    """Four pods of queue `a`, which is entitled to none of them as soon as `b` wants them."""
    await two_nodes(cluster)
    for number in range(4):
        await running(cluster, f"a{number}", "a", f"n{number // 2 + 1}", owner=f"owner-a{number}")


async def half_full(cluster: ApiCluster) -> None:
    """One pod of `b` on each node: two GPUs are free, but on two nodes."""
    await two_nodes(cluster)
    await running(cluster, "m1", "b", "n1", owner="owner-m1")
    await running(cluster, "m2", "b", "n2", owner="owner-m2")


async def sliced(cluster: ApiCluster) -> None:
    """A GPU with two slices of queue `a`."""
    await queue(cluster, "a", quota=0)
    await queue(cluster, "b", quota=4)
    await cluster.node("n1", gpus=1)
    async with scheduling(cluster):
        for name in ("s1", "s2"):
            await cluster.pod(name, slices={"3g.20gb": 1}, labels={names.QUEUE_LABEL: "a"})
        await cluster.bound("s1", "s2")
    await cluster.end_lease()


async def limited(cluster: ApiCluster) -> None:
    """A queue with a pod on one node that may use no more, though another node is free."""
    await queue(cluster, "b", quota=0, limit=1)
    for node in ("n1", "n2"):
        await gpu_node(cluster, node, 1)
    await running(cluster, "m1", "b", "n1")


async def an_important_pod(cluster: ApiCluster) -> None:
    await gpu_pod(cluster, "important", "b", priority=75)


async def a_pod_with_all_slices(cluster: ApiCluster) -> None:
    await cluster.pod("slice", slices={"7g.40gb": 1}, labels={names.QUEUE_LABEL: "b"})


async def two_pods(cluster: ApiCluster) -> None:
    await gpu_pod(cluster, "p1", "a", gpus=2)
    await gpu_pod(cluster, "p2", "b", gpus=2)


async def a_large_pod(cluster: ApiCluster) -> None:
    await gpu_pod(cluster, "large", "b", gpus=2)


async def a_gang(cluster: ApiCluster) -> None:
    await pod_group(cluster, "g", minimum=3, queue="b")
    for number in range(3):
        await gpu_pod(cluster, f"g{number}", "b", group="g")


async def a_large_pod_and_a_rival(cluster: ApiCluster) -> None:
    await a_large_pod(cluster)
    await gpu_pod(cluster, RIVAL, "a")


async def a_gang_and_a_rival(cluster: ApiCluster) -> None:
    await a_gang(cluster)
    await gpu_pod(cluster, RIVAL, "a")


RIVAL = "rival"  # would fit wherever one of several victims has gone
GANG = ("g0", "g1", "g2")
STORIES = {
    "allocate": Story(two_nodes, two_pods, ("p1", "p2")),
    "gang": Story(two_nodes, a_gang, GANG),
    "reclaim": Story(full, a_large_pod_and_a_rival, ("large",), victims=2),
    "reclaim-gang": Story(full, a_gang_and_a_rival, GANG, victims=3),
    "reclaim-slices": Story(sliced, a_pod_with_all_slices, ("slice",), victims=2, owned=False),
    "preempt-limit": Story(limited, an_important_pod, ("important",), victims=1, owned=False, for_place=False),
    "move": Story(half_full, a_large_pod, ("large",), victims=1, successors=1),
}


async def finished(cluster: ApiCluster, story: Story) -> None:
    await cluster.bound(*story.takers)

    async def made_anew() -> bool:
        found = [pod for pod in await pods(cluster) if "." in pod.metadata.name]
        return (
            len(found) == story.victims * story.owned
            and sum(bool(pod.spec.node_name) for pod in found) == story.successors
        )

    await until(made_anew)


async def told_once(cluster: ApiCluster, story: Story) -> Counter[str]:
    """The calls of an undisturbed story."""
    await story.begin(cluster)
    proxy = Proxy()
    life = Life(cluster)
    async with life.going_on(), scheduling(cluster, cluster.wire(proxy)):
        await story.arrive(cluster)
        await finished(cluster, story)
        await check(cluster, story, life)
    await clear(cluster)
    return proxy.calls


async def told_with_a_crash(cluster: ApiCluster, story: Story, cut: Cut, *, after: bool) -> bool:
    """False if the story was over before that call."""
    await story.begin(cluster)
    first = Proxy(cut, after)
    life = Life(cluster)
    async with life.going_on():
        async with scheduling(cluster, cluster.wire(first)):
            await story.arrive(cluster)
            over = asyncio.create_task(finished(cluster, story))
            died = asyncio.create_task(first.dead.wait())
            await asyncio.wait({over, died}, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            died.cancel()
            await asyncio.gather(over, died, return_exceptions=True)
            first.dead.set()
        await asyncio.sleep(0.1)  # evicted pods end meanwhile
        await cluster.end_lease()
        async with scheduling(cluster):
            await finished(cluster, story)
            await asyncio.sleep(0.2)  # would it evict anybody else?
            await check(cluster, story, life)
    await clear(cluster)
    return first.calls[cut[0]] >= cut[1]


async def check(cluster: ApiCluster, story: Story, life: Life) -> None:
    """As many victims as needed, all of them pods of the beginning, each where one of the takers is now."""
    assert RIVAL not in life.evicted, f"it got a place that is evicted for others: {life.evicted}"
    assert len(life.evicted) == story.victims, life.evicted
    assert not [name for name in life.evicted if "." in name], f"evicted for the same place again: {life.evicted}"
    places = await cluster.bound(*story.takers)
    for name, node in life.evicted.items():
        assert not story.for_place or node in places.values(), f"{name} was evicted from {node} for nobody: {places}"


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", STORIES)
async def test_q06_q07_r02_killed_at_every_call_nobody_is_evicted_for_nobody(
    each_cluster: ApiCluster, name: str
) -> None:
    cluster, story = each_cluster, STORIES[name]
    try:
        calls = await told_once(cluster, story)
        cuts = [((kind, n + 1), after) for kind in calls for n in range(calls[kind]) for after in (False, True)]
        if not FULL:
            seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
            print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
            dice = random.Random(seed)
            writes = [cut for cut in cuts if matters(cut[0][0])]
            cuts = dice.sample(writes, min(SAMPLE, len(writes))) + dice.sample(cuts, 1)
        reached = 0
        for cut, after in cuts:
            try:
                reached += await told_with_a_crash(cluster, story, cut, after=after)
            except BaseException as error:
                when = "after" if after else "before"
                error.add_note(f"cut at {cut[0]} number {cut[1]}, {when} the server acted")
                raise
        print(f"{name}: {len(cuts)} stories, {reached} of them cut, {calls.total()} calls each")
        assert reached >= len(cuts) // 4
    finally:
        with suppress(Exception):
            await clear(cluster)


def matters(kind: str) -> bool:
    """Writes that decide something: nominations and conditions, evictions, claims, bindings."""
    return kind == "POST allocationclaims" or (kind.rsplit(maxsplit=1)[-1] in SUBRESOURCES and " pods " in kind)
