"""How many writes a pod costs: 5 to join a shared GPU, at most 5 more for a GPU that is newly shared, events apart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from prometheus_client import REGISTRY

from apportion.cluster.transport import HttpRequest, Response
from tests.binder.cluster import SharingCluster, binding

UNCOUNTED = ("/events", "/leases")
BIND_REQUEST, RESERVE = 1, 1  # of the scheduler, and of the program in the reservation pod


class Writes:
    """Of a binder."""

    def __init__(self) -> None:
        self.found: list[str] = []

    async def __call__(self, request: HttpRequest, onwards: Callable[[], Awaitable[Response]]) -> Response:
        response = await onwards()
        if request.method != "GET" and not any(part in request.path for part in UNCOUNTED):
            self.found.append(f"{request.method} {request.path}: {response.status}")
        return response

    def taken(self) -> list[str]:
        found, self.found = [each for each in self.found if not each.endswith("409")], []
        return found


async def test_g05_writes_of_a_first_sharer_of_a_joiner_and_of_their_end(shared: SharingCluster) -> None:
    writes = Writes()
    gpus = await shared.node()
    async with binding(shared, shared.api.wire(writes)):
        groups = await shared.request(await shared.pod("a"), gpus[0])
        await shared.running("a")
        first = writes.taken()
        await shared.request(await shared.pod("b"), gpus[0], groups=groups)
        await shared.running("b")
        joiner = writes.taken()
        await shared.delete("a")
        await shared.one_reservation(sharers=1)
        one_ends = writes.taken()
        await shared.delete("b")
        await shared.empty()
        last_ends = writes.taken()
    assert BIND_REQUEST + len(joiner) == 5, joiner
    assert BIND_REQUEST + len(first) + RESERVE <= 6, first
    assert len(one_ends) == 1, one_ends
    assert len(last_ends) == 1, last_ends


async def test_r03_metrics_of_the_binder(embedded: SharingCluster) -> None:
    def value(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(f"apportion_binder_{name}", labels) or 0.0

    before = {result: value("bindings_total", result=result) for result in ("bound", "failed")}
    seconds = value("bind_seconds_count")
    gpus = await embedded.node()
    async with binding(embedded):
        await embedded.request(await embedded.pod("a", devices=2), gpus)
        await embedded.request(await embedded.pod("b", memory=99999), gpus[0])
        await embedded.running("a")
        await embedded.failed("b")
        assert value("reservations") == 2
        assert value("leading") == 1
    assert value("leading") == 0
    assert value("bindings_total", result="bound") - before["bound"] == 1
    assert value("bindings_total", result="failed") - before["failed"] == 1
    assert value("bind_seconds_count") - seconds == 1
    assert value("writes_total", verb="create", resource="pods/binding") >= 1
