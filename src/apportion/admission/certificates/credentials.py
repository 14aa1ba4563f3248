"""The certificates of the webhook, in one Secret that all replicas share.

The Secret contains our certificate authority (CA) and one serving certificate. A replica that finds it missing,
invalid or due for renewal writes a new one with compare-and-swap; a replica that loses the race reads the result. So
all replicas agree without a leader.

A CA is renewed long before it expires: first the bundle contains the old and the new CA, and only later, when every
API server trusts both, the serving certificate is replaced. A Secret without the key of the CA belongs to another
program (cert-manager, an administrator): it is served, never changed.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from apportion.apis import kinds
from apportion.cluster import errors
from apportion.cluster.certificates import AUTHORITY_DAYS, BACKDATE, LEAF_DAYS, Authority, KeyPair
from apportion.cluster.client import Client

log = logging.getLogger(__name__)

AUTHORITY_NAME = "apportion-webhook"
BUNDLE, AUTHORITY_KEY, CERTIFICATE, KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"
ATTEMPTS = 20


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Credentials:
    """What is served (`pair`) and what callers must trust (`bundle`)."""

    pair: KeyPair
    bundle: bytes
    authority: Authority | None = None

    @classmethod
    def read(cls, data: Mapping[str, str]) -> Credentials:
        """From a Secret's data. Raises ValueError if it holds no usable pair."""
        raw = {name: base64.b64decode(text, validate=True) for name, text in data.items()}
        missing = [name for name in (BUNDLE, CERTIFICATE, KEY) if not raw.get(name)]
        if missing:
            raise ValueError(f"{', '.join(missing)} missing")
        pair = KeyPair(raw[CERTIFICATE], raw[KEY])
        pair.server_context()  # refuses a key that does not belong to its certificate
        authority = Authority.from_pem(raw[BUNDLE], raw.get(AUTHORITY_KEY, b""))
        if not authority.signed(pair):
            raise ValueError(f"{CERTIFICATE} is not signed by {BUNDLE}")
        if not authority.pair.key_pem:
            return cls(pair, raw[BUNDLE])
        authority.pair.server_context()
        return cls(pair, raw[BUNDLE], authority)

    def data(self) -> dict[str, str]:
        raw = {BUNDLE: self.bundle, CERTIFICATE: self.pair.cert_pem, KEY: self.pair.key_pem}
        if self.authority is not None:
            raw[AUTHORITY_KEY] = self.authority.pair.key_pem
        return {name: base64.b64encode(content).decode() for name, content in raw.items()}


@dataclass(frozen=True)
class Terms:
    """For whom certificates are issued, and how long they last."""

    dns_names: tuple[str, ...]
    leaf_days: int = LEAF_DAYS
    authority_days: int = AUTHORITY_DAYS
    settling: timedelta = timedelta(minutes=10)
    """How long a new authority is announced before certificates of it are served."""


def issue(terms: Terms, now: datetime) -> Credentials:
    """A new authority and its first certificate."""
    authority = Authority.create(AUTHORITY_NAME, days=terms.authority_days, now=now)
    return _signed(authority, terms, now)


def renewed(current: Credentials, terms: Terms, now: datetime) -> Credentials:
    """What should be in the Secret instead of `current`; the same object if nothing is due."""
    authority = current.authority
    if authority is None:
        return current
    if authority.pair.due(now):
        authority = authority.rotate(days=terms.authority_days, now=now)
        current = replace(current, authority=authority, bundle=authority.bundle)
    made = authority.pair.certificate.not_valid_before_utc + BACKDATE
    stale = now - made >= terms.settling and not Authority(authority.pair).signed(current.pair)
    if current.pair.due(now) or stale or not current.pair.covers(terms.dns_names):
        return _signed(authority, terms, now)
    return current


def _signed(authority: Authority, terms: Terms, now: datetime) -> Credentials:
    return Credentials(authority.issue(terms.dns_names, days=terms.leaf_days, now=now), authority.bundle, authority)


def regenerated(current: Credentials, terms: Terms, now: datetime) -> Credentials:
    """A new serving certificate of the same authority, due or not."""
    if current.authority is None:
        raise ValueError(
            f"the Secret has no {AUTHORITY_KEY}: it is managed by another program, which must issue the certificate"
        )
    return _signed(current.authority, terms, now)


def announced(current: Credentials, terms: Terms, now: datetime) -> Credentials:
    """A new authority beside the old one, still with the certificate of the old."""
    if current.authority is None:
        raise ValueError(
            f"the Secret has no {AUTHORITY_KEY}: it is managed by another program, which must create the CA"
        )
    authority = current.authority.rotate(days=terms.authority_days, now=now)
    return replace(current, authority=authority, bundle=authority.bundle)


class SecretKeeper:
    """Reads the Secret, and writes it when something is due."""

    def __init__(
        self, client: Client, *, namespace: str, name: str, terms: Terms, clock: Callable[[], datetime] = _now
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._terms = terms
        self._clock = clock

    async def ensure(self) -> Credentials:
        """The credentials that every replica uses from now on."""
        for _ in range(ATTEMPTS):
            try:
                return await self._attempt()
            except (errors.Conflict, errors.NotFound):
                continue  # another replica was faster: use what it wrote
        raise errors.Conflict(
            409, "Conflict", f"Secret {self._namespace}/{self._name} is modified concurrently; try again"
        )

    async def change(self, how: Callable[[Credentials, Terms, datetime], Credentials]) -> Credentials:
        """Write what `how` makes of the credentials that are there (made first if there are none)."""
        for _ in range(ATTEMPTS):
            current = await self.ensure()
            secret = await self._client.get(kinds.SECRETS, self._name, namespace=self._namespace)
            if self._read(secret) != current:
                continue
            wanted = how(current, self._terms, self._clock())
            try:
                await self._client.replace(kinds.SECRETS, {**secret, "data": wanted.data()}, namespace=self._namespace)
            except errors.Conflict:
                continue
            return wanted
        raise errors.Conflict(
            409, "Conflict", f"Secret {self._namespace}/{self._name} is modified concurrently; try again"
        )

    async def _attempt(self) -> Credentials:
        try:
            secret = await self._client.get(kinds.SECRETS, self._name, namespace=self._namespace)
        except errors.NotFound:
            return await self._create()
        current = self._read(secret)
        wanted = issue(self._terms, self._clock()) if current is None else renewed(current, self._terms, self._clock())
        if wanted is not current:
            log.info("renewed the certificates in Secret %s: valid until %s", self._name, wanted.pair.expires.date())
            await self._client.replace(kinds.SECRETS, {**secret, "data": wanted.data()}, namespace=self._namespace)
        return wanted

    async def _create(self) -> Credentials:
        fresh = issue(self._terms, self._clock())
        secret = {
            "metadata": {"name": self._name, "namespace": self._namespace},
            "type": "Opaque",
            "data": fresh.data(),
        }
        await self._client.create(kinds.SECRETS, secret, namespace=self._namespace)
        log.info("created Secret %s: valid until %s", self._name, fresh.pair.expires.date())
        return fresh

    def _read(self, secret: Mapping[str, Any]) -> Credentials | None:
        try:
            return Credentials.read(secret.get("data") or {})
        except (ValueError, TypeError, OSError, binascii.Error) as error:
            log.warning("Secret %s is invalid and will be replaced: %s", self._name, error)
            return None


class FolderKeeper:
    """Credentials that another program maintains in files: a mounted Secret, cert-manager, a script."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def ensure(self) -> Credentials:
        """What the files hold now. Raises ConfigError while they do not fit together."""
        try:
            files = {name: (self._folder / name).read_bytes() for name in (BUNDLE, CERTIFICATE, KEY)}
            return Credentials.read({name: base64.b64encode(content).decode() for name, content in files.items()})
        except (OSError, ValueError) as error:
            raise errors.ConfigError(f"invalid certificates in {self._folder}: {error}") from error


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Under which names an API server calls a Service."""
    return (f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local", f"{service}.{namespace}", service)
