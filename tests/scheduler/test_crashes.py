"""Killed at every call that it makes to the API, before the server acted and after: nothing is lost or doubled.

A story is told once to count its calls. Then it is told again and again, each time with a scheduler that dies at
the n-th call; a successor finishes the work, and the end must always be the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from apportion.apis import kinds, names
from apportion.apis.custom_resources.claims import claim_name
from tests.scheduler.cluster import ApiCluster, Wire, scheduling, until
from tests.scheduler.cut_connections import Proxy, cuts_of

SAMPLE = 6  # cuts of each kind in CI
STAYING = ("two", "one", "whole", "plain")
GHOST, HOPELESS = "ghost", "hopeless"


async def begin(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=2, mig=1, resources={names.NVIDIA_GPU: "1"})
    await cluster.node("n2", gpus=1)
    await cluster.pod("two", slices={"2g.10gb": 2})
    await cluster.pod("one", slices={"1g.5gb": 1})
    await cluster.pod("whole", limits={names.NVIDIA_GPU: "1"})
    await cluster.pod("plain", limits={"cpu": "1"})
    await cluster.pod(GHOST, slices={"3g.20gb": 1})
    await cluster.pod(HOPELESS, slices={"7g.40gb": 3})


async def finished(cluster: ApiCluster, *, scheduled_events: int = 0) -> None:
    await cluster.bound(*STAYING)
    await cluster.waits(HOPELESS)
    await events_are_there(cluster, scheduled_events)


async def told_once(cluster: ApiCluster) -> list[str]:
    """The calls of an undisturbed story."""
    await begin(cluster)
    proxy = Proxy()
    async with scheduling(cluster, cluster.wire(proxy)):
        await finished(cluster, scheduled_events=5)
    return proxy.calls


async def told_with_a_crash(cluster: ApiCluster, cut_at: int, *, after: bool) -> bool:
    """False if the story was over before the n-th call."""
    await begin(cluster)
    first, second = Proxy(cut_at, after), Proxy()
    wire: Wire = cluster.wire(first)
    async with scheduling(cluster, wire):
        over = asyncio.create_task(finished(cluster, scheduled_events=5))
        died = asyncio.create_task(first.dead.wait())
        await asyncio.wait({over, died}, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        died.cancel()
        await asyncio.gather(over, died, return_exceptions=True)
        first.dead.set()
    if cut_at % 2:  # a pod that vanishes while nobody leads
        await cluster.delete(GHOST)
    await cluster.end_lease()
    async with scheduling(cluster, cluster.wire(second)):
        await finished(cluster)
        await check(cluster, first.bindings + second.bindings)
        for name in (*STAYING, GHOST, HOPELESS):
            if name != GHOST or not cut_at % 2:
                await cluster.delete(name)
        await until(lambda: no_claims(cluster))
    return len(first.calls) > cut_at


async def check(cluster: ApiCluster, bindings: Counter[str]) -> None:
    assert all(count == 1 for count in bindings.values()), bindings
    expected = {"two": 2, "one": 1, "whole": 0, "plain": 0}
    pods = {name: await cluster.get(name) for name in STAYING}
    wanted = {
        claim_name(pod.metadata.uid, "main", index): pod.spec.node_name
        for name, pod in pods.items()
        for index in range(expected[name])
    }

    async def settled() -> bool:
        found = {c.name: c.spec.nodename for c in await cluster.claims() if c.spec.pod_ref.name != GHOST}
        return found == wanted

    await until(settled)
    await cluster.no_overlap()


async def events_are_there(cluster: ApiCluster, scheduled: int) -> None:
    """The hopeless pod was told why, and so many others that they have a node."""

    async def told() -> bool:
        listing = await cluster.client.list(kinds.EVENTS, namespace="default")
        hopeless = any(event["involvedObject"]["name"] == HOPELESS for event in listing.items)
        return hopeless and sum(event["reason"] == "Scheduled" for event in listing.items) >= scheduled

    await until(told)


async def no_claims(cluster: ApiCluster) -> bool:
    return not await cluster.claims()


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_s06_r02_killed_at_every_call_it_makes_it_loses_and_doubles_nothing(
    each_cluster: ApiCluster,
) -> None:
    cluster = each_cluster
    calls = await told_once(cluster)
    await cluster.clear()
    kinds_of_calls = {call.split("/")[-1] if "binding" in call else call for call in calls}
    assert any(call.endswith("/binding") for call in calls), kinds_of_calls
    cuts = cuts_of(calls, writes=SAMPLE, any_calls=SAMPLE // 3)
    reached = 0
    for number, after in cuts:
        try:
            reached += await told_with_a_crash(cluster, number, after=after)
        except BaseException as error:
            error.add_note(f"cut at call {number} ({calls[number]}), {'after' if after else 'before'} the server acted")
            raise
        await cluster.clear()
    print(f"{len(cuts)} stories, {reached} of them cut, {len(calls)} calls each")
    assert reached >= len(cuts) // 4
