"""Many pods at once, pods that join while the last one ends, and two binders that both believe they lead."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from apportion.apis import kinds
from apportion.apis.custom_resources.bind_requests import BindRequest
from apportion.cluster import errors
from apportion.cluster.transport import HttpRequest, Response
from tests.binder.cluster import OTHER, SharingCluster, binding, bound_or_failed
from tests.binder.stand_in_kubelet import RESERVATIONS
from tests.scheduler.cluster import until

FULL = os.environ.get("APPORTION_SOAK") == "1"


def dice() -> random.Random:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    return random.Random(seed)


@pytest.mark.timeout(300)
async def test_g11_200_half_gpu_pods_at_once_on_100_gpus(embedded: SharingCluster) -> None:
    places = [
        (node, gpu) for number in range(25) for node in (f"n{number}",) for gpu in await embedded.node(node, gpus=4)
    ]
    pods = [await embedded.pod(f"p{number}", ("default", OTHER)[number % 2]) for number in range(200)]
    async with binding(embedded):
        groups: dict[str, list[str]] = {}
        for number, pod in enumerate(pods):
            node, gpu = places[number // 2]
            groups[gpu] = await embedded.request(pod, gpu, node=node, groups=groups.get(gpu, ()))

        async def all_run() -> bool:
            return len(embedded.kubelet.running) == 200

        await until(all_run, within=120)
        await embedded.check()
        assert len(await embedded.reservations()) == 100
        for pod in pods:
            await embedded.delete(pod.metadata.name, pod.metadata.namespace)
        await embedded.empty()
    assert not embedded.kubelet.problems


@pytest.mark.timeout(600)
async def test_g11_a_pod_that_joins_while_the_last_one_ends_is_never_lost(shared: SharingCluster) -> None:
    chance = dice()
    (gpu,) = await shared.node(gpus=1)
    async with binding(shared):
        before = await shared.pod("p0")
        groups = await shared.request(before, gpu)
        await shared.running("p0")
        for number in range(1, 200 if FULL else 25):
            pod = await shared.pod(f"p{number}")

            async def leave(name: str = f"p{number - 1}", pause: float = chance.random() * 0.02) -> None:
                await asyncio.sleep(pause)
                await shared.delete(name)

            await asyncio.gather(leave(), shared.request(pod, gpu, groups=groups))
            await shared.running(f"p{number}")
            assert not shared.kubelet.problems
        await shared.one_reservation(sharers=1)
        await shared.check()
        await shared.delete(pod.metadata.name)
        await shared.empty()


@pytest.mark.timeout(600)
async def test_g11_two_binders_that_both_lead_sell_nothing_twice(shared: SharingCluster) -> None:
    """Pods come and go, requests are withdrawn at any moment, reservations are slow: the scheduler decides again."""
    chance = dice()
    gpus = await shared.node(gpus=3)
    shared.kubelet.ending_seconds = 0.02
    async with AsyncExitStack() as stack:
        for name in ("first", "second"):
            await stack.enter_async_context(binding(shared, lease_name=name, identity=name))

        async def life(number: int) -> None:
            name = f"p{number}"
            pod = await shared.pod(name, fraction=chance.choice(("0.5", "0.4", "0.3")))
            while True:
                gpu = chance.choice(gpus)
                await shared.request(pod, gpu, groups=[f"group-{gpus.index(gpu)}"])
                if chance.random() < 0.5:
                    await asyncio.sleep(chance.random() * 0.1)
                    await shared.withdraw(name)
                if await bound_or_failed(shared, name):
                    break
                await shared.withdraw(name)
                await asyncio.sleep(chance.random() * 0.05)
            await asyncio.sleep(chance.random() * 0.2)
            await shared.delete(name)

        for _ in range(10 if FULL else 1):
            async with asyncio.timeout(200):
                await asyncio.gather(*(life(number) for number in range(20)))
            await shared.empty()
            assert not shared.kubelet.problems, shared.kubelet.problems


@pytest.mark.timeout(300)
async def test_g11_reservations_deleted_by_hand_while_pods_are_bound(embedded: SharingCluster) -> None:
    chance = dice()
    gpus = await embedded.node(gpus=4)
    embedded.kubelet.reservations_may_vanish = True
    async with binding(embedded):
        groups: dict[str, list[str]] = {}
        for number in range(8):
            gpu = gpus[number // 2]
            groups[gpu] = await embedded.request(await embedded.pod(f"p{number}"), gpu, groups=groups.get(gpu, ()))
            for reservation in await embedded.reservations():
                if chance.random() < 0.4:
                    try:
                        name = reservation.metadata.name
                        await embedded.client.delete(
                            kinds.PODS, name, namespace=RESERVATIONS, grace=chance.choice((0, 1))
                        )
                    except errors.NotFound:
                        continue

        async def settled() -> bool:
            for number in range(8):
                request = await embedded.client.get(
                    kinds.BIND_REQUESTS, f"p{number}", namespace="default", into=BindRequest
                )
                pod = await embedded.get(f"p{number}")
                if not request.failed and pod.status.phase != "Running":
                    return False
            return True

        await until(settled, within=90)
        assert not embedded.kubelet.problems, embedded.kubelet.problems
        for number in range(8):
            await embedded.delete(f"p{number}")
        await embedded.empty()


@pytest.mark.timeout(300)
async def test_g11_answers_that_are_lost_change_nothing(embedded: SharingCluster) -> None:
    """A third of the binder's writes fail, half of them after the server acted."""
    chance = dice()
    gpus = await embedded.node(gpus=5)

    async def unreliable(request: HttpRequest, onwards: Callable[[], Awaitable[Response]]) -> Response:
        lost = request.method != "GET" and "/leases" not in request.path and chance.random() < 1 / 3
        if lost and chance.random() < 0.5:
            raise errors.Unreachable("the request was lost")
        response = await onwards()
        if lost:
            raise errors.Unreachable("the answer was lost")
        return response

    async with binding(embedded, embedded.api.wire(unreliable)):
        groups: dict[str, list[str]] = {}
        for number in range(10):
            gpu = gpus[number // 2]
            groups[gpu] = await embedded.request(await embedded.pod(f"p{number}"), gpu, groups=groups.get(gpu, ()))
        await embedded.running(*(f"p{number}" for number in range(10)), within=90)
        await embedded.check()
        assert len(await embedded.reservations()) == 5
        for number in range(10):
            await embedded.delete(f"p{number}")
        await embedded.empty()
