"""Two schedulers and two binders that all believe to lead, and many pods that share GPUs: nothing is sold twice."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.binder.cluster import NAMESPACES, SharingCluster, binding
from tests.scheduler.cluster import scheduling, until
from tests.sharing.observer import ShareObserver
from tests.sharing.planes import nothing_left, switch_on

ROUNDS = 10 if os.environ.get("APPORTION_SOAK") == "1" else 1
NODES, GPUS = 3, 4
HALVES = 2 * NODES * GPUS


@asynccontextmanager
async def two_of_each(cluster: SharingCluster) -> AsyncIterator[None]:
    """Under leases of their own."""
    async with AsyncExitStack() as stack:
        for name in ("first", "second"):
            await stack.enter_async_context(scheduling(cluster.api, lease_name=name, identity=name))
            await stack.enter_async_context(binding(cluster, lease_name=f"{name}-binder", identity=name))
        yield


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("reported", [True, False], ids=["agents", "no-agents"])
async def test_g11_two_schedulers_and_two_binders_that_all_lead_sell_nothing_twice(
    shared: SharingCluster, *, reported: bool
) -> None:
    """As many pods as there is room for, while others come and go."""
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    dice = random.Random(seed)
    await switch_on(shared)
    for number in range(NODES):
        await shared.node(f"n{number}", gpus=GPUS, reported=reported, label="40960")
    shared.kubelet.ending_seconds = 0.02

    async def passing(name: str) -> None:
        """A pod that leaves soon, whether it was bound or not."""
        await shared.pod(name, fraction=dice.choice(("0.3", "0.5", "0.8")))
        await asyncio.sleep(dice.random())
        await shared.delete(name)

    async with ShareObserver(shared.client, shared.kubelet.memory).watching() as observer, two_of_each(shared):
        for number in range(ROUNDS):
            pods = [(f"p{number}-{each}", NAMESPACES[each % 2]) for each in range(HALVES)]
            await asyncio.gather(
                *(shared.pod(name, namespace) for name, namespace in pods),
                *(passing(f"q{number}-{each}") for each in range(8)),
            )
            for namespace in NAMESPACES:
                await shared.running(
                    *(name for name, place in pods if place == namespace), namespace=namespace, within=120
                )
            await until(lambda: one_reservation_per_gpu(shared))
            await shared.check()
            for name, namespace in pods:
                await shared.delete(name, namespace)
            await nothing_left(shared)
            assert not observer.violations, observer.violations
        assert observer.bound >= ROUNDS * HALVES


async def one_reservation_per_gpu(cluster: SharingCluster) -> bool:
    return len([pod for pod in await cluster.reservations() if not pod.metadata.deleting]) == NODES * GPUS
