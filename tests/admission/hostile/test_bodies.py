"""Bodies that are meant to cost more than they weigh (T02), and large ones that are legal."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.admission import admission_review, reviewed_object
from apportion.admission.admission_review import BadReview, Question, ReviewAnswer
from apportion.admission.large_reviews import LARGE_BYTES
from apportion.admission.server import Limits
from tests.admission.hostile.clients import HEAD, SlowClient
from tests.admission.hostile.test_slow_clients import trusting
from tests.admission.reviews import Asker, applied, review
from tests.admission.samples import resources
from tests.admission.test_server import NAME, SLICED, serving
from tests.builders.pods import container, pod
from tests.environments.waiting import eventually

EIGHT_MB = 8 * 1024 * 1024 - 2000


def stuffed(filling: bytes, place: str = "spec") -> bytes:
    """A review of 8 MB whose object is full of one thing."""
    marked = json.loads(json.dumps(SLICED))
    if place == "containers":
        marked["spec"]["containers"] = ["HERE"]
    else:
        marked.setdefault(place, {})["filling"] = ["HERE"]
    many = filling * (EIGHT_MB // len(filling))
    return json.dumps(review(marked)).encode().replace(b'"HERE"', many.rstrip(b","))


BOMBS = {
    "lists": stuffed(b"[],"),
    "objects": stuffed(b"{},"),
    "strings": stuffed(b'"",', "metadata"),
    "numbers": stuffed(b"1,", "status"),
    "containers": stuffed(b"{},", "containers"),
    "lists of lists": stuffed(b"[[[[[[[[[]]]]]]]]],"),
}


@pytest.mark.parametrize("name", sorted(BOMBS))
def test_t02_a_review_of_eight_megabytes_costs_little_more_than_its_bytes(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadReview, match="values"):
            admission_review.parse(BOMBS[name])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * EIGHT_MB


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda more: st.lists(more) | st.dictionaries(st.text(), more),
    )
)
def test_t02_values_are_counted_outside_of_strings(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert values(value) <= reviewed_object._exact(text) <= 2 * values(value) + 1
    assert reviewed_object._exact(text) <= reviewed_object._quick(text)


def values(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(values, inner))


LEGAL: dict[str, dict[str, Any]] = {
    "variables": pod(
        "large",
        containers=[
            container(limits={"nvidia.com/mig-1g.5gb": "2"})
            | {"env": [{"name": f"V{number}", "value": "x"} for number in range(45_000)]}
        ],
    ),
    "one long argument": pod(
        "large", containers=[container(limits={"nvidia.com/mig-1g.5gb": "2"}) | {"args": ["[{,}]" * 300_000]}]
    ),
    "containers": pod(
        "large",
        containers=[container(f"c{number}", limits={"nvidia.com/mig-1g.5gb": "1"}) for number in range(1_000)],
    ),
}


@pytest.mark.parametrize("name", sorted(LEGAL))
async def test_t02_objects_as_large_as_a_server_stores_are_reviewed(name: str) -> None:
    given = LEGAL[name]
    assert len(json.dumps(given)) > 100_000
    async with serving() as (asker, *_):
        after = applied(given, await asker.ask(review(given)))
    assert resources(after)["limits"]["mig.das.com/1g.5gb"] in {"1", "2"}
    assert after["spec"]["schedulerName"] == "das-scheduler"
    assert [each["name"] for each in after["spec"]["containers"]] == [c["name"] for c in given["spec"]["containers"]]


async def test_t02_a_patch_touches_nothing_that_rules_do_not_read() -> None:
    given = pod("odd", containers=[container(limits={"nvidia.com/mig-1g.5gb": "1"}) | {"x-unknown": [1, {"a": None}]}])
    given["metadata"]["managedFields"] = [{"manager": "m"}]
    given["status"] = {"phase": "Pending"}
    async with serving() as (asker, *_):
        after = applied(given, await asker.ask(review(given)))
    assert after["metadata"]["managedFields"] == given["metadata"]["managedFields"]
    assert after["status"] == given["status"]
    assert after["spec"]["containers"][0]["x-unknown"] == [1, {"a": None}]


async def post(asker: Asker, port: int, bundle: bytes, headers: bytes, body: bytes) -> int:
    sent = HEAD + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body
    client = await SlowClient.open(port, trusting(bundle), NAME, sent)
    try:
        return await client.status()
    finally:
        client.close()


async def test_t02_compressed_bodies_are_read_within_limits_and_broken_ones_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain = json.dumps(review(SLICED)).encode()
    caplog.set_level(logging.WARNING)
    async with serving() as (asker, port, _, issued):

        async def status(body: bytes, encoding: bytes = b"gzip") -> int:
            return await post(asker, port, issued.bundle, b"Content-Encoding: " + encoding + b"\r\n", body)

        assert await status(gzip.compress(plain)) == 200
        assert await status(plain) == 400
        assert await status(gzip.compress(plain)[:-9]) == 400
        assert await status(gzip.compress(b"\0" * 100_000_000)) == 400
        assert await status(b"") == 400
        assert await status(plain, b"br") == 400
        assert (await asker.ask(review(SLICED)))["allowed"] is True
    assert not caplog.records


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /mutate-slices HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (HEAD + b"Content-Length: -1\r\n\r\n", 400),
        (HEAD + b"Content-Length: 1e3\r\n\r\n", 400),
        (HEAD + b"Content-Length: \xd9\xa1\r\n\r\n", 400),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (HEAD + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n", 400),
        (HEAD + b"no colon\r\n\r\n", 400),
        (HEAD + b"X: " + b"y" * 100_000 + b"\r\n\r\n", 431),
        (b"GET /mutate-slices HTTP/1.1\r\n\r\n", 405),
        (b"\x00\x01\x02\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    ],
)
async def test_t02_requests_that_are_no_reviews_are_told_why(sent: bytes, status: int) -> None:
    async with serving() as (asker, port, _, issued):
        client = await SlowClient.open(port, trusting(issued.bundle), NAME, sent)
        assert await client.status() == status
        client.close()
        assert (await asker.ask(review(SLICED)))["allowed"] is True


async def test_t02_many_large_reviews_let_small_ones_through() -> None:
    """Of many large reviews and a small one that comes last, the small one is answered among the first."""
    large = json.dumps(review(LEGAL["variables"])).encode()
    async with serving() as (asker, *_):
        order: list[str] = []
        answered = asyncio.Event()

        async def send(name: str, body: bytes) -> None:
            assert (await asker.post("/mutate-slices", body))[0] == 200
            order.append(name)
            answered.set()

        tasks = [asyncio.create_task(send("large", large)) for _ in range(12)]
        await answered.wait()
        await send("small", json.dumps(review(SLICED)).encode())
        await asyncio.gather(*tasks)
    assert order.index("small") < 12


async def test_t02_large_reviews_that_wait_make_room_for_small_ones() -> None:
    decided = asyncio.Event()

    async def slow(question: Question) -> ReviewAnswer:
        if question.size > LARGE_BYTES:
            await decided.wait()
        return admission_review.allowed(question.uid)

    large = json.dumps(review(LEGAL["one long argument"])).encode()
    async with serving(Limits(waiting=3, seconds=60, drain_seconds=0), rule=slow) as (asker, *_):
        waiting = [asyncio.create_task(asker.post("/mutate-slices", large)) for _ in range(3)]
        await eventually(lambda: answered(asker, waiting))
        decided.set()
        statuses = sorted([(await task)[0] for task in waiting])
    assert statuses == [200, 200, 503]


async def answered(asker: Asker, waiting: list[asyncio.Task[tuple[int, str]]]) -> bool:
    """A small review is answered although as many large ones wait as may wait at all; one of them gave way."""
    assert (await asker.ask(review(SLICED)))["allowed"] is True
    return any(task.done() for task in waiting)


@pytest.mark.parametrize("field", ["uid", "namespace", "name", "operation"])
async def test_t02_names_are_no_longer_than_kubernetes_allows(field: str) -> None:
    async with serving() as (asker, *_):
        status, said = await asker.post("/mutate-slices", json.dumps(review(SLICED, **{field: "x" * 300})).encode())
        assert status == 400
        assert field in said
