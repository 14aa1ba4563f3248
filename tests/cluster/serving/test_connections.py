"""Which connection is given up when there are too many, or when they hold too much (T02)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from apportion.cluster.serving.connections import Connection, Connections, Phase


@pytest.fixture
async def idle() -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]
    yield task  # type: ignore[misc]
    task.cancel()


def connection(idle: asyncio.Task[None], address: str, phase: Phase = Phase.OPENING, since: float = 0.0) -> Connection:
    return Connection(address, idle, phase, since)


async def test_t02_the_oldest_that_completed_nothing_goes_first_and_a_complete_request_never(
    idle: asyncio.Task[None],
) -> None:
    connections = Connections(4, 100)
    phases = (Phase.ANSWERING, Phase.IDLE, Phase.READING, Phase.OPENING)
    opened = [connection(idle, "a", phase) for phase in phases]
    assert all(map(connections.add, opened))
    for victim in reversed(opened[1:]):
        assert connections.add(connection(idle, "a", Phase.ANSWERING))
        assert victim.given_up
        assert len(connections) == 4
    assert not connections.add(connection(idle, "a"))
    assert not opened[0].given_up


async def test_t02_the_address_with_the_most_connections_gives_way(idle: asyncio.Task[None]) -> None:
    connections = Connections(5, 100)
    few = [connection(idle, "few", since=number) for number in range(2)]
    many = [connection(idle, "many", since=10 + number) for number in range(3)]
    assert all(map(connections.add, (*few, *many)))
    assert connections.add(connection(idle, "few", since=20))
    assert [each.given_up for each in (*few, *many)] == ["", "", "too many connections", "", ""]


async def test_t02_the_largest_body_gives_way_to_a_smaller_one(idle: asyncio.Task[None]) -> None:
    connections = Connections(5, 100)
    large, small, other = opened = [connection(idle, "a", Phase.READING) for _ in range(3)]
    assert all(map(connections.add, opened))
    assert connections.hold(large, 60)
    assert connections.hold(small, 30)
    assert not connections.hold(other, 70)
    assert connections.hold(other, 20)
    assert [each.given_up for each in opened] == ["too many large requests", "", ""]
    assert connections.held == 50
    connections.remove(small)
    assert connections.held == 20
