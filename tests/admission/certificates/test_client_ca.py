"""With a client CA, strangers get no further than the handshake (T03)."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest

from apportion.admission import admission_review
from apportion.admission.certificates import credentials
from apportion.admission.certificates.serving_tls import ServingTls
from apportion.admission.server import AdmissionServer, Limits
from apportion.cluster.certificates import Authority
from apportion.cluster.errors import ConfigError
from tests.admission.reviews import Asker, review
from tests.admission.test_server import NAME, SLICED, TERMS

ISSUED = credentials.issue(TERMS, datetime.now(UTC))


@asynccontextmanager
async def serving(tls: ServingTls) -> AsyncIterator[int]:
    rules = {"/mutate-slices": lambda question: admission_review.allowed(question.uid)}
    server = AdmissionServer(rules, tls.context, limits=Limits(drain_seconds=0))
    port = await server.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await server.stop()


def caller(port: int, authority: Authority | None) -> Asker:
    asker = Asker(port, ISSUED.bundle, NAME)
    if authority is not None:
        authority.issue(common_name="kube-apiserver", client=True).load_into(asker._context)
    return asker


async def passes(port: int, authority: Authority | None) -> bool:
    try:
        return bool((await caller(port, authority).ask(review(SLICED)))["allowed"])
    except (aiohttp.ClientError, ssl.SSLError):
        return False


async def test_t03_only_clients_with_a_certificate_of_the_ca_are_answered_and_a_new_ca_is_read(tmp_path: Path) -> None:
    first, second = Authority.create("first"), Authority.create("second")
    file = tmp_path / "ca.crt"
    file.write_bytes(first.bundle)
    tls = ServingTls(file)
    assert tls.refresh(ISSUED.pair)
    async with serving(tls) as port:
        assert [await passes(port, each) for each in (first, second, None)] == [True, False, False]
        file.write_bytes(second.bundle)
        assert tls.refresh(ISSUED.pair)
        assert [await passes(port, each) for each in (first, second, None)] == [False, True, False]
        file.write_bytes(first.bundle + second.bundle)
        assert tls.refresh(ISSUED.pair)
        assert not tls.refresh(ISSUED.pair)
        assert [await passes(port, each) for each in (first, second, None)] == [True, True, False]


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff"])
async def test_t03_a_file_that_is_no_ca_lets_nobody_in_and_what_was_served_stays(
    tmp_path: Path, content: bytes
) -> None:
    authority = Authority.create("first")
    file = tmp_path / "ca.crt"
    file.write_bytes(content)
    tls = ServingTls(file)
    with pytest.raises(ConfigError):
        tls.refresh(ISSUED.pair)
    assert tls.pair is None
    file.write_bytes(authority.bundle)
    tls.refresh(ISSUED.pair)
    file.write_bytes(content)
    with pytest.raises(ConfigError):
        tls.refresh(ISSUED.pair)
    async with serving(tls) as port:
        assert [await passes(port, each) for each in (authority, None)] == [True, False]
