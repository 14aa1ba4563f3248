"""The work queue: each key once, never twice at the same time, later after a failure."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from apportion.cluster.errors import Unreachable
from apportion.cluster.workqueue import WorkQueue

pytestmark = pytest.mark.looptime


@asynccontextmanager
async def working(
    queue: WorkQueue[str], reconcile: Callable[[str], Awaitable[float | None]], workers: int = 1
) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run(reconcile, workers))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        queue.close()


async def test_keys_that_wait_are_not_added_twice() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    seen: list[str] = []

    async def reconcile(key: str) -> None:
        seen.append(key)

    for key in ("a", "b", "a", "a"):
        queue.add(key)
    async with working(queue, reconcile):
        await asyncio.sleep(0.1)
    assert seen == ["a", "b"]
    assert queue.idle


async def test_one_key_is_never_worked_on_twice_at_once_and_nothing_is_lost() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    running: set[str] = set()
    rounds: dict[str, int] = {}

    async def reconcile(key: str) -> None:
        assert key not in running
        running.add(key)
        await asyncio.sleep(1)
        running.discard(key)
        rounds[key] = rounds.get(key, 0) + 1

    async with working(queue, reconcile, workers=4):
        queue.add("a")
        queue.add("b")
        await asyncio.sleep(0.5)
        queue.add("a")
        queue.add("a")
        assert len(running) == 2
        await asyncio.sleep(5)
    assert rounds == {"a": 2, "b": 1}


async def test_failures_come_back_later_and_later_and_success_forgets_them() -> None:
    queue: WorkQueue[str] = WorkQueue("test", first_backoff=1, longest_backoff=4)
    times: list[float] = []
    loop = asyncio.get_running_loop()

    async def reconcile(key: str) -> None:
        times.append(loop.time())
        if len(times) <= 5:
            raise Unreachable("not today") if len(times) % 2 else RuntimeError("a bug")

    async with working(queue, reconcile):
        queue.add("a")
        await asyncio.sleep(60)
    gaps = [round(later - earlier) for earlier, later in itertools.pairwise(times)]
    assert gaps == [1, 2, 4, 4, 4]
    assert queue.failures("a") == 0


async def test_of_several_times_the_earliest_counts() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    times: list[float] = []
    loop = asyncio.get_running_loop()
    begun = loop.time()

    async def reconcile(key: str) -> None:
        times.append(loop.time() - begun)

    async with working(queue, reconcile):
        queue.add_after("a", 10)
        queue.add_after("a", 3)
        queue.add_after("a", 7)
        await asyncio.sleep(20)
    assert [round(moment) for moment in times] == [3]


async def test_a_result_asks_to_look_again() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    count = 0

    async def reconcile(key: str) -> float | None:
        nonlocal count
        count += 1
        return 5.0 if count < 3 else None

    async with working(queue, reconcile):
        queue.add("a")
        await asyncio.sleep(100)
    assert count == 3
    assert queue.idle


async def test_a_long_queue_of_work_that_never_waits_leaves_others_their_turn() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    done: list[str] = []

    async def reconcile(key: str) -> None:
        done.append(key)

    for number in range(100):
        queue.add(str(number))
    async with working(queue, reconcile):
        await asyncio.sleep(0)
        assert len(done) < 100
        while not queue.idle:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert len(done) == 100
