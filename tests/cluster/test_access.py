"""How a cluster is reached: kubeconfigs of every kind, and the service account of a pod."""

from __future__ import annotations

import base64
import json
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from apportion.apis.kinds import NODES
from apportion.cluster import access, credentials, service_account
from apportion.cluster.certificates import Authority
from apportion.cluster.client import Client
from apportion.cluster.errors import ConfigError
from tests.cluster.scripted_api import Fault, ScriptedApi, serving

AUTHORITY = Authority.create("apportion test")


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    api = ScriptedApi()
    async with serving(api, tls=AUTHORITY.issue([], ["127.0.0.1"]).server_context()):
        yield api


def kubeconfig(path: Path, server: str, user: dict[str, Any], **cluster: Any) -> Path:
    cluster.setdefault("certificate-authority-data", base64.b64encode(AUTHORITY.bundle).decode())
    body = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "here"}}],
        "clusters": [{"name": "k", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(body))
    return path


async def ask(config: Path | None, api: ScriptedApi) -> str | None:
    async with Client.from_kubeconfig(config) as client:
        await client.list(NODES)
    return api.requests[-1].headers.get("authorization")


async def test_a_token_is_sent(api: ScriptedApi, tmp_path: Path) -> None:
    assert await ask(kubeconfig(tmp_path / "c", api.url, {"token": "secret"}), api) == "Bearer secret"


async def test_name_and_password_are_sent(api: ScriptedApi, tmp_path: Path) -> None:
    got = await ask(kubeconfig(tmp_path / "c", api.url, {"username": "me", "password": "pw"}), api)
    assert got == "Basic " + base64.b64encode(b"me:pw").decode()


async def test_relative_files_are_found_beside_the_kubeconfig(api: ScriptedApi, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.bundle)
    (tmp_path / "token").write_text("from-file\n")
    extra = {"certificate-authority": "ca.pem", "certificate-authority-data": None}
    assert await ask(kubeconfig(tmp_path / "c", api.url, {"tokenFile": "token"}, **extra), api) == "Bearer from-file"


async def test_a_client_certificate_is_shown_to_the_server(tmp_path: Path) -> None:
    pair = AUTHORITY.issue(common_name="me", organizations=["system:masters"], client=True)
    user = {
        "client-certificate-data": base64.b64encode(pair.cert_pem).decode(),
        "client-key-data": base64.b64encode(pair.key_pem).decode(),
    }
    assert (("commonName", "me"),) in await subject_shown(user, tmp_path)


async def test_an_exec_plugin_may_give_a_client_certificate(tmp_path: Path) -> None:
    pair = AUTHORITY.issue(common_name="plugged", client=True)
    status = {"clientCertificateData": pair.cert_pem.decode(), "clientKeyData": pair.key_pem.decode()}
    (tmp_path / "answer").write_text(json.dumps({"kind": "ExecCredential", "status": status}))
    user = {"exec": {"command": "cat", "args": [str(tmp_path / "answer")]}}
    assert (("commonName", "plugged"),) in await subject_shown(user, tmp_path)


async def subject_shown(user: dict[str, Any], folder: Path) -> Any:
    """Whom a server that asks for certificates saw."""
    api = ScriptedApi()
    context = AUTHORITY.issue([], ["127.0.0.1"]).server_context()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=AUTHORITY.bundle.decode())
    seen: list[Any] = []

    async def look(request: web.Request) -> None:
        seen.append(request.get_extra_info("peercert")["subject"])

    api.faults.append(Fault(lambda _: True, look))
    async with serving(api, tls=context):
        await ask(kubeconfig(folder / "c", api.url, user), api)
    return seen[0]


async def test_an_exec_plugin_is_run_and_run_again_when_its_token_expires(api: ScriptedApi, tmp_path: Path) -> None:
    script = tmp_path / "plugin.py"
    script.write_text(
        "import json, os, pathlib\n"
        f"counter = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "n = int(counter.read_text()) + 1 if counter.exists() else 1\n"
        "counter.write_text(str(n))\n"
        "assert json.loads(os.environ['KUBERNETES_EXEC_INFO'])['kind'] == 'ExecCredential'\n"
        "assert os.environ['EXTRA'] == 'x'\n"
        "when = '2020-01-01T00:00:00Z' if n == 1 else '2999-01-01T00:00:00Z'\n"
        "print(json.dumps({'kind': 'ExecCredential', 'status': {'token': f't{n}', 'expirationTimestamp': when}}))\n"
    )
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(script)],
        "env": [{"name": "EXTRA", "value": "x"}],
    }
    async with Client.from_kubeconfig(kubeconfig(tmp_path / "c", api.url, {"exec": plugin})) as client:
        for _ in range(3):
            await client.list(NODES)
    assert [request.headers["authorization"] for request in api.requests] == ["Bearer t1", "Bearer t2", "Bearer t2"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [("raise SystemExit(3)", "exit code 3"), ("print('hello')", "did not print an ExecCredential")],
)
async def test_an_exec_plugin_that_fails_is_named(api: ScriptedApi, tmp_path: Path, code: str, expected: str) -> None:
    user = {"exec": {"command": sys.executable, "args": ["-c", code]}}
    with pytest.raises(ConfigError, match=expected):
        await ask(kubeconfig(tmp_path / "c", api.url, user), api)
    user = {"exec": {"command": "/no/such/plugin", "installHint": "install it so"}}
    with pytest.raises(ConfigError, match="install it so"):
        await ask(kubeconfig(tmp_path / "c", api.url, user), api)


async def test_several_files_are_merged_and_the_first_wins(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = tmp_path / "one"
    one.write_text(yaml.safe_dump({"current-context": "c", "users": [{"name": "u", "user": {"token": "one"}}]}))
    two = kubeconfig(tmp_path / "two", api.url, {"token": "two"})
    monkeypatch.setenv("KUBECONFIG", f"{one}:{tmp_path / 'missing'}:{two}")
    assert await ask(None, api) == "Bearer one"
    assert access.current_namespace() == "here"


async def test_a_pod_uses_its_service_account_and_reads_its_token_again(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.bundle)
    (tmp_path / "token").write_text("first")
    monkeypatch.setenv(service_account.DIRECTORY_ENV, str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", api.url.rsplit(":", 1)[1])
    monkeypatch.setattr(credentials, "REREAD_SECONDS", 0.0)
    async with Client.connect() as client:
        await client.list(NODES)
        (tmp_path / "token").write_text("second")
        await client.list(NODES)
        (tmp_path / "token").unlink()
        await client.list(NODES)
    assert [request.headers["authorization"] for request in api.requests] == [
        "Bearer first",
        "Bearer second",
        "Bearer second",
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "cannot read the kubeconfig"),
        ("[]", "is not a mapping"),
        ("{}", "no current-context"),
        (json.dumps({"current-context": "c"}), "does not define context 'c'"),
    ],
)
def test_a_bad_kubeconfig_is_refused_in_one_sentence(tmp_path: Path, content: str, expected: str) -> None:
    (tmp_path / "c").write_text(content)
    with pytest.raises(ConfigError, match=expected):
        access.from_kubeconfig(tmp_path / "c")
    with pytest.raises(ConfigError, match="none does not exist"):
        access.from_kubeconfig(tmp_path / "none")
