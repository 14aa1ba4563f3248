"""Who we are, asked before every request: fixed headers, a token file, or an exec plugin."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from apportion.cluster import input_files
from apportion.cluster.errors import ConfigError
from apportion.cluster.transport import Credentials

REREAD_SECONDS = 10.0
EXEC_SECONDS = 60.0
EXPIRY_MARGIN_SECONDS = 30.0


def fixed(authorization: str) -> Credentials:
    headers = {"authorization": authorization}

    async def give() -> Mapping[str, str]:
        return headers

    return give


def token_file(path: Path) -> Credentials:
    """The token of a file that another program renews (for example a kubelet): read again every few seconds."""
    cached: dict[str, str] = {}
    read_at = float("-inf")

    async def give() -> Mapping[str, str]:
        nonlocal read_at
        if time.monotonic() - read_at > REREAD_SECONDS:
            try:
                cached["authorization"] = f"Bearer {input_files.text(path).strip()}"
            except (OSError, UnicodeDecodeError) as error:
                if not cached:
                    raise ConfigError(f"cannot read the token file {path}: {error}") from error
            read_at = time.monotonic()
        return cached

    return give


class ExecPlugin:
    """A program that prints an ExecCredential (cloud log-ins); run again shortly before it expires."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        *,
        cluster: Mapping[str, Any],
        on_certificate: Callable[[str, str | None], None],
    ) -> None:
        if not spec.get("command"):
            raise ConfigError("the exec plugin in the kubeconfig has no command")
        self._spec = spec
        self._cluster = cluster
        self._on_certificate = on_certificate
        self._headers: dict[str, str] = {}
        self._expires = float("-inf")
        self._lock = asyncio.Lock()

    async def __call__(self) -> Mapping[str, str]:
        async with self._lock:
            if time.time() > self._expires - EXPIRY_MARGIN_SECONDS:
                self._take(await self._run())
            return self._headers

    def _take(self, status: Mapping[str, Any]) -> None:
        if status.get("token"):
            self._headers = {"authorization": f"Bearer {status['token']}"}
        if status.get("clientCertificateData"):
            self._on_certificate(status["clientCertificateData"], status.get("clientKeyData"))
        expires = status.get("expirationTimestamp")
        self._expires = _epoch(expires) if expires else float("inf")

    async def _run(self) -> Mapping[str, Any]:
        spec = self._spec
        command = [spec["command"], *(spec.get("args") or [])]
        variables = {entry["name"]: entry["value"] for entry in spec.get("env") or []}
        about: dict[str, Any] = {"interactive": False}
        if spec.get("provideClusterInfo"):
            about["cluster"] = {
                "server": self._cluster.get("server"),
                "certificate-authority-data": self._cluster.get("certificate-authority-data"),
            }
        info = {"apiVersion": spec.get("apiVersion"), "kind": "ExecCredential", "spec": about}
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(info)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = spec.get("installHint") or "is it installed?"
            raise ConfigError(f"the exec plugin {command[0]!r} cannot be started: {error}; {hint}") from error
        try:
            output, _ = await asyncio.wait_for(process.communicate(), EXEC_SECONDS)
        except TimeoutError as error:
            process.kill()
            await process.wait()
            raise ConfigError(f"the exec plugin {command[0]!r} did not respond within {EXEC_SECONDS:.0f} s") from error
        return _status(command[0], process.returncode, output)


def _status(command: str, code: int | None, output: bytes) -> Mapping[str, Any]:
    if code:
        raise ConfigError(f"the exec plugin {command!r} failed with exit code {code}")
    try:
        status: Mapping[str, Any] = json.loads(output)["status"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the exec plugin {command!r} did not print an ExecCredential with a status") from error
    return status


def _epoch(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).astimezone(UTC).timestamp()
