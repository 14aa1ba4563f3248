"""Calling a webhook over TLS: by URL, or by Service through the ready endpoints behind it."""

from __future__ import annotations

import asyncio
import base64
import binascii
import functools
import random
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from apportion.cluster.certificates import KeyPair
from pocketkube.api import turns
from pocketkube.api.storage.store import Bucket, Store

Obj = dict[str, Any]

LARGEST_ANSWER = 10 * 1024 * 1024

_SERVICES = Bucket("", "services")
_SLICES = Bucket("discovery.k8s.io", "endpointslices")
_SERVICE_NAME_LABEL = "kubernetes.io/service-name"


class CallError(Exception):
    """A webhook that could not be called or did not answer as it must; failure policies apply to this."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect, and what the other side must prove to be."""

    shown: str  # the URL as error messages name it
    url: URL
    server_name: str
    host_header: str


class WebhookClient:
    """Sends reviews. Connections are kept and shared by all webhooks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.certificate: KeyPair | None = None
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, config: Mapping[str, Any], review: Obj, seconds: int) -> Obj:
        """The decoded answer; raises CallError."""
        address = self._address(config, seconds)
        async with turns.waiting_for_another_server():
            return await self._post(address, config.get("caBundle") or "", review, seconds)

    async def _post(self, address: Address, bundle: str, review: Obj, seconds: int) -> Obj:
        try:
            async with asyncio.timeout(seconds):
                return await self._send(address, bundle, review)
        except TimeoutError:
            raise CallError(f'failed to call webhook: Post "{address.shown}": context deadline exceeded') from None
        except (aiohttp.ClientError, ssl.SSLError, OSError, ValueError) as problem:
            raise CallError(f'failed to call webhook: Post "{address.shown}": {_words(problem)}') from None

    async def _send(self, address: Address, bundle: str, review: Obj) -> Obj:
        session = self._open()
        async with session.post(
            address.url,
            data=msgspec.json.encode(review),
            headers={"content-type": "application/json", "accept": "application/json", "host": address.host_header},
            ssl=_context(bundle, self.certificate),
            server_hostname=address.server_name,
            allow_redirects=False,
        ) as response:
            body = await response.content.read(LARGEST_ANSWER + 1)
            if len(body) > LARGEST_ANSWER:
                raise CallError("failed to call webhook: the answer is too large")
            if response.status != 200:  # noqa: PLR2004
                text = body[:1024].decode(errors="replace")
                raise CallError(f"failed to call webhook: the server rejected our request ({response.status}): {text}")
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as problem:
            raise CallError(f"failed to call webhook: the answer is not a JSON object: {problem}") from None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=100, keepalive_timeout=30),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=True,
                trust_env=False,
            )
        return self._session

    def _address(self, config: Mapping[str, Any], seconds: int) -> Address:
        service = config.get("service")
        if service is None:
            url = URL(config.get("url") or "").update_query(timeout=f"{seconds}s")
            return Address(str(url), url, url.host or "", url.authority)
        name, namespace, port = service.get("name", ""), service.get("namespace", ""), service.get("port") or 443
        server = f"{name}.{namespace}.svc"
        path = (service.get("path") or "/").removeprefix("/")
        shown = f"https://{server}:{port}/{path}?timeout={seconds}s"
        try:
            host, number = self._endpoint(namespace, name, port)
        except LookupError as problem:
            raise CallError(f'failed to call webhook: Post "{shown}": {problem.args[0]}') from None
        bracketed = f"[{host}]" if ":" in host else host
        return Address(
            shown, URL(f"https://{bracketed}:{number}/{path}?timeout={seconds}s"), server, f"{server}:{port}"
        )

    def _endpoint(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        stored = self._store.get(_SERVICES, namespace, name)
        if stored is None:
            raise LookupError(f'service "{name}" not found')
        ports = (stored.decode().get("spec") or {}).get("ports") or []
        chosen = next((each for each in ports if each.get("port") == port), None)
        if chosen is None:
            raise LookupError(f'no service port {port} found for service "{name}"')
        ready: list[tuple[str, int]] = []
        for item in self._store.items(_SLICES, namespace):
            if item.labels.get(_SERVICE_NAME_LABEL) == name:
                ready += _ready_addresses(item.decode(), chosen.get("name") or "")
        if not ready:
            raise LookupError(f'no endpoints available for service "{name}"')
        return random.choice(ready)  # noqa: S311  spreading load is no secret


def _ready_addresses(endpoints: Obj, port_name: str) -> list[tuple[str, int]]:
    numbers = [each.get("port") for each in endpoints.get("ports") or () if (each.get("name") or "") == port_name]
    return [
        (address, number)
        for number in numbers
        if number
        for endpoint in endpoints.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
        for address in (endpoint.get("addresses") or ())[:1]
    ]


@functools.lru_cache(maxsize=64)
def _context(bundle: str, certificate: KeyPair | None) -> ssl.SSLContext:
    """Trusts the given authorities, or those of the system if none is given."""
    try:
        pem = base64.b64decode(bundle, validate=True).decode("ascii") or None
        context = ssl.create_default_context(cadata=pem)
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError) as problem:
        raise CallError(f"unable to load root certificates: {problem}") from None
    if certificate is not None:
        certificate.load_into(context)
    return context


def _words(problem: Exception) -> str:
    """The cause in the words that users of clusters know, where there are such."""
    if isinstance(problem, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: {problem.certificate_error}"
    if isinstance(problem, aiohttp.ClientConnectorError) and isinstance(problem.os_error, ConnectionRefusedError):
        return f"dial tcp {problem.host}:{problem.port}: connect: connection refused"
    if isinstance(problem, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(problem) or type(problem).__name__
