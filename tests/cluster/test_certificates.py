"""The certificate authority: clients trust what it signs, and rotation breaks no connection."""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apportion.apis.kinds import NODES
from apportion.cluster import errors
from apportion.cluster.certificates import Authority, KeyPair
from apportion.cluster.client import Client
from apportion.cluster.transport import HttpTransport
from tests.cluster.scripted_api import ScriptedApi, serving


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.bundle.decode())


async def ask(api: ScriptedApi, tls: ssl.SSLContext) -> None:
    async with Client(HttpTransport(api.url, tls=tls)) as client:
        await client.list(NODES)


async def test_a_server_is_trusted_by_clients_that_trust_its_authority() -> None:
    authority = Authority.create("apportion test")
    api = ScriptedApi()
    async with serving(api, tls=authority.issue(["localhost"], ["127.0.0.1"]).server_context()):
        await ask(api, trusting(authority))
        with pytest.raises(errors.Unreachable, match="certificate"):
            await ask(api, trusting(Authority.create("somebody else")))


async def test_rotation_keeps_old_and_new_servers_trusted() -> None:
    old = Authority.create("apportion test")
    new = old.rotate()
    api = ScriptedApi()
    context = old.issue([], ["127.0.0.1"]).server_context()
    async with serving(api, tls=context):
        await ask(api, trusting(new))
        new.issue([], ["127.0.0.1"]).load_into(context)
        await ask(api, trusting(new))
        with pytest.raises(errors.Unreachable):
            await ask(api, trusting(old))
    assert new.signed(old.issue(["a"]))
    assert not old.signed(new.issue(["a"]))
    assert not Authority.create("apportion test").signed(old.issue(["a"]))


def test_an_authority_that_has_expired_leaves_the_bundle() -> None:
    long_ago = datetime.now(UTC) - timedelta(days=30)
    assert Authority.create("x", days=10, now=long_ago).rotate().retired == ()
    assert len(Authority.create("x", days=100, now=long_ago).rotate().retired) == 1


def test_certificates_are_due_after_two_thirds_of_their_life() -> None:
    pair = Authority.create("x").issue(["a"], days=90)
    assert not pair.due(datetime.now(UTC) + timedelta(days=59))
    assert pair.due(datetime.now(UTC) + timedelta(days=61))


def test_a_pair_knows_what_it_covers() -> None:
    pair = Authority.create("x").issue(["a.svc", "b.svc"], ["127.0.0.1", "::1"])
    assert pair.covers(["a.svc"], ["127.0.0.1"])
    assert not pair.covers(["c.svc"])
    assert not pair.covers([], ["127.0.0.2"])


def test_keys_on_disk_are_for_the_owner_alone(tmp_path: Path) -> None:
    authority = Authority.create("x").rotate()
    authority.save(tmp_path / "ca.crt", tmp_path / "ca.key")
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600
    loaded = Authority.load(tmp_path / "ca.crt", tmp_path / "ca.key")
    assert loaded == authority
    pair = loaded.issue(["a"])
    pair.save(tmp_path / "tls.crt", tmp_path / "tls.key")
    assert KeyPair.load(tmp_path / "tls.crt", tmp_path / "tls.key") == pair
