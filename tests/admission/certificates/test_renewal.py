"""Certificates are renewed while reviews come in: no review fails."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from apportion.admission.certificates import credentials, regeneration, trust
from apportion.admission.certificates.credentials import Terms
from apportion.admission.certificates.regeneration import Regeneration
from apportion.admission.main import FALLBACK, callers
from apportion.apis import kinds, names
from apportion.apis.installation import Installation
from apportion.cli import certs, options
from tests.admission.fallback.cluster import NAMESPACE, SETTINGS, FallbackCluster, fallback_cluster
from tests.builders.pods import fallback_pod
from tests.environments.waiting import eventually

TERMS = Terms(credentials.service_names(names.FALLBACK_SERVICE, NAMESPACE))


def regenerating(it: FallbackCluster) -> Regeneration:
    return Regeneration(
        it.client,
        list(callers(Installation()).values()),
        service=names.FALLBACK_SERVICE,
        namespace=NAMESPACE,
        secret=names.FALLBACK_CERTIFICATE_SECRET,
        settle=0.2,
    )


@asynccontextmanager
async def under_load(it: FallbackCluster) -> AsyncIterator[list[int]]:
    """Reviews without pause, each over a connection of its own; any that fails fails the test."""
    done = [0]
    ended = asyncio.Event()

    async def ask() -> None:
        while not ended.is_set():
            await it.create(fallback_pod(), dry_run=True)
            await it.server.admission.close()  # each request opens a new connection, so it gets the current certificate
            done[0] += 1

    tasks = [asyncio.create_task(ask())]
    try:
        yield done
    finally:
        ended.set()
        await asyncio.gather(*tasks)


async def bundle(it: FallbackCluster) -> bytes:
    found = await it.client.get(kinds.MUTATING_WEBHOOKS, names.FALLBACK_WEBHOOK_CONFIGURATION)
    (only,) = {entry["clientConfig"]["caBundle"] for entry in found["webhooks"]}
    return base64.b64decode(only)


async def served(it: FallbackCluster) -> bytes:
    secret = await it.client.get(kinds.SECRETS, names.FALLBACK_CERTIFICATE_SECRET, namespace=NAMESPACE)
    return base64.b64decode(secret["data"]["tls.crt"])


@pytest.mark.parametrize("replicas", [1, 2])
async def test_f03_certificates_are_made_anew_under_load_and_the_authority_stays(replicas: int) -> None:
    async with fallback_cluster(replicas=replicas) as it, under_load(it) as done:
        before, first = await bundle(it), await served(it)
        for _ in range(5):
            reached = done[0] + 5
            await regenerating(it).keep_authority(lambda _: None)
            await eventually(lambda reached=reached: done[0] >= reached)
        assert await bundle(it) == before
        assert await served(it) != first


@pytest.mark.parametrize("replicas", [1, 2])
async def test_f03_a_new_authority_is_published_beside_the_old_one_first(replicas: int) -> None:
    async with fallback_cluster(replicas=replicas) as it, under_load(it) as done:
        before = await bundle(it)
        said: list[str] = []
        await regenerating(it).new_authority(said.append)
        reached = done[0] + 5
        await eventually(lambda: done[0] >= reached)
        after = await bundle(it)
        assert after != before
        assert before in after
        assert said[0] == "published the new CA together with the old one"


async def test_f03_certificates_in_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    def write(made: credentials.Credentials) -> None:
        made.pair.save(tmp_path / "tls.crt", tmp_path / "tls.key")
        (tmp_path / "ca.crt").write_bytes(made.bundle)

    first = credentials.issue(TERMS, datetime.now(UTC))
    write(first)
    async with fallback_cluster(settings=replace(SETTINGS, certificates=tmp_path)) as it:
        assert await bundle(it) == first.bundle
        assert await it.create(fallback_pod(), dry_run=True)
        announced = credentials.announced(first, TERMS, datetime.now(UTC))
        write(announced)
        await eventually(lambda: trusts(it, announced.bundle))
        write(credentials.regenerated(announced, TERMS, datetime.now(UTC)))
        (tmp_path / "tls.key").write_text("half written")  # kept away until the files fit together again
        assert await it.create(fallback_pod(), dry_run=True)


async def trusts(it: FallbackCluster, wanted: bytes) -> bool:
    return await bundle(it) == wanted


def test_f03_a_configuration_is_printed_with_its_bundle() -> None:
    given: dict[str, Any] = {"webhooks": [{"clientConfig": {"service": {}}}]}
    made = regeneration.with_bundle(given, b"pem")
    assert made["webhooks"][0]["clientConfig"]["caBundle"] == base64.b64encode(b"pem").decode()
    assert FALLBACK in callers(Installation())


def test_f03_a_bundle_is_written_only_where_it_is_missing_and_only_if_the_entries_stand_where_they_were() -> None:
    service = {"name": "s", "namespace": "n"}
    ours: dict[str, Any] = {"name": "ours", "clientConfig": {"service": {**service, "path": "/x"}}}
    theirs = {"name": "theirs", "clientConfig": {"service": {"name": "other", "namespace": "n"}}}
    found = {"webhooks": [theirs, ours, {"name": "by-url", "clientConfig": {"url": "https://x"}}]}
    text = base64.b64encode(b"pem").decode()
    assert trust.publication(found, service, b"pem") == [
        {"op": "test", "path": "/webhooks/1/name", "value": "ours"},
        {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": text},
    ]
    ours["clientConfig"]["caBundle"] = text
    assert trust.publication(found, service, b"pem") == []


def test_f03_a_file_that_cannot_be_written_is_refused_before_anything_changes(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, wrong in {
        tmp_path: "is a directory; specify a file in it",
        tmp_path / "missing" / "out.yaml": r"directory .*/missing does not exist",
        tmp_path / "file" / "out.yaml": r"directory .*/file does not exist",
    }.items():
        with pytest.raises(typer.BadParameter, match=wrong):
            certs.command(configuration_out=path, kubeconfig=tmp_path / "no-such-cluster")


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_f04_promises_need_a_lifetime(seconds: float) -> None:
    with pytest.raises(typer.BadParameter, match="above 0"):
        options.positive_seconds(seconds)
