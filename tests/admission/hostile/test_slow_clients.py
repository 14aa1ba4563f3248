"""Clients that stop in the middle never keep a client that does not from being answered (T02)."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from apportion.admission.server import Limits
from apportion.cluster.serving.limits import ServerLimits
from tests.admission.hostile.clients import HEAD, body_of, slow_clients
from tests.admission.reviews import review
from tests.admission.test_server import NAME, SLICED, serving


def trusting(bundle: bytes) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=bundle.decode())


async def test_t02_a_review_is_answered_while_150_bodies_do_not_arrive() -> None:
    limits = Limits(server=ServerLimits(read_seconds=60), drain_seconds=0)
    async with (
        serving(limits) as (asker, port, _, issued),
        slow_clients(150, port, trusting(issued.bundle), NAME, body_of(1000, 10)) as slow,
    ):
        assert (await asker.ask(review(SLICED)))["allowed"] is True
        assert not any(client.answered() for client in slow)


@pytest.mark.parametrize("stage", ["handshake", "nothing", "head", "body"])
async def test_t02_connections_that_are_not_used_make_room_for_one_that_is(stage: str) -> None:
    limits = Limits(server=ServerLimits(connections=20), drain_seconds=0)
    sent = {"handshake": b"\x16\x03\x01", "nothing": b"", "head": HEAD, "body": body_of(1000, 10)}[stage]
    async with serving(limits) as (asker, port, _, issued):
        context = None if stage == "handshake" else trusting(issued.bundle)
        async with slow_clients(60, port, context, NAME, sent) as slow:
            assert (await asker.ask(review(SLICED)))["allowed"] is True
            await asyncio.sleep(0.1)
            assert sum(client.answered() for client in slow) >= 40


@pytest.mark.parametrize("stage", ["nothing", "head", "body"])
async def test_t02_whoever_stops_in_the_middle_is_told_so_after_a_while(stage: str) -> None:
    limits = Limits(server=ServerLimits(read_seconds=0.3), drain_seconds=0)
    sent = {"nothing": b"", "head": HEAD, "body": body_of(1000, 10)}[stage]
    async with (
        serving(limits) as (_, port, _, issued),
        slow_clients(1, port, trusting(issued.bundle), NAME, sent) as (client,),
    ):
        assert await client.status() == 408


async def test_t02_a_handshake_that_does_not_end_is_ended() -> None:
    limits = Limits(server=ServerLimits(handshake_seconds=0.3), drain_seconds=0)
    async with serving(limits) as (_, port, *_), slow_clients(1, port, None, NAME, b"\x16\x03\x01") as (client,):
        assert await client.status() == 0


async def test_t02_large_bodies_make_room_for_small_ones() -> None:
    limits = Limits(server=ServerLimits(held_bytes=180_500), drain_seconds=0)
    async with (
        serving(limits) as (asker, port, _, issued),
        slow_clients(10, port, trusting(issued.bundle), NAME, body_of(100_000, 60_000)) as slow,
    ):
        assert (await asker.ask(review(SLICED)))["allowed"] is True
        statuses = [await client.status() for client in slow]
        assert statuses.count(503) == 8  # seven for which there was no room, and one of the first three


async def test_t02_a_client_that_reads_no_answer_is_cut_off() -> None:
    limits = Limits(server=ServerLimits(read_seconds=0.3, idle_seconds=0.3), drain_seconds=0)
    many = b"GET /mutate-slices HTTP/1.1\r\n\r\n" * 20_000
    async with (
        serving(limits) as (asker, port, _, issued),
        slow_clients(3, port, trusting(issued.bundle), NAME) as slow,
    ):
        for client in slow:
            client.writer.write(many)
        assert (await asker.ask(review(SLICED)))["allowed"] is True
