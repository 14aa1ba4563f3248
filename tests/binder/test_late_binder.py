"""A binder that is late with a write: what was given up meanwhile stays given up. Rules G05, G11."""

from __future__ import annotations

import asyncio

import pytest

from apportion.cluster.transport import HttpRequest, Response
from tests.binder.cluster import SharingCluster, binding
from tests.scheduler.cluster import until
from tests.scheduler.cut_connections import Onwards

POD = "/api/v1/namespaces/default/pods/a"


class Delay:
    """Holds up the first request of its kind until it is told to let go."""

    def __init__(self, method: str, path: str) -> None:
        self._method, self._path = method, path
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, request: HttpRequest, onwards: Onwards) -> Response:
        if (request.method, request.path) == (self._method, self._path) and not self.reached.is_set():
            self.reached.set()
            await self.go.wait()
        return await onwards()


@pytest.mark.parametrize(
    ("method", "path"),
    [("PATCH", POD), ("POST", "/api/v1/namespaces/default/configmaps"), ("POST", f"{POD}/binding")],
    ids=["labels", "config map", "binding"],
)
async def test_g11_a_request_that_was_withdrawn_meanwhile_binds_nothing(
    shared: SharingCluster, method: str, path: str
) -> None:
    (gpu,) = await shared.node(gpus=1)
    delay = Delay(method, path)
    async with binding(shared, shared.api.wire(delay), lease_name="late", identity="late"):
        await shared.request(await shared.pod("a", fraction="0.6"), gpu)
        await delay.reached.wait()
        await shared.withdraw("a")
        async with binding(shared, lease_name="next", identity="next"):
            await until(lambda: none_left(shared))
            await shared.request(await shared.pod("b", fraction="0.6"), gpu)
            await shared.running("b")
            delay.go.set()
            await shared.request(await shared.pod("c", fraction="0.4"), gpu, groups=await groups(shared))
            await shared.running("c")
            assert not (await shared.get("a")).spec.node_name
            await shared.check()


async def none_left(cluster: SharingCluster) -> bool:
    return not await cluster.reservations()


async def groups(cluster: SharingCluster) -> list[str]:
    (reservation,) = await cluster.reservations()
    return [reservation.metadata.labels["runai-gpu-group"]]
