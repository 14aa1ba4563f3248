"""Our own certificate authority for webhooks and the embedded server: ECDSA, PEM, rotation.

Rotation keeps two authorities for a while: the bundle that clients trust holds the old and the new one,
so that servers may change over one by one.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from apportion.cluster import pemfile

AUTHORITY_DAYS = 3650
LEAF_DAYS = 365
RENEW_AT = 2 / 3
BACKDATE = timedelta(hours=1)


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its key, both PEM."""

    cert_pem: bytes
    key_pem: bytes

    @property
    def certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.cert_pem)

    @property
    def expires(self) -> datetime:
        return self.certificate.not_valid_after_utc

    def due(self, now: datetime | None = None) -> bool:
        """True once two thirds of its lifetime are over."""
        certificate = self.certificate
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        return (now or datetime.now(UTC)) >= begin + (end - begin) * RENEW_AT

    def covers(self, dns_names: Sequence[str] = (), ips: Sequence[str] = ()) -> bool:
        """True if every one of these names and addresses is in the certificate."""
        try:
            names = self.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return not (dns_names or ips)
        addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
        return set(dns_names) <= set(names.get_values_for_type(x509.DNSName)) and set(ips) <= addresses

    def server_context(self) -> ssl.SSLContext:
        """A TLS context for a server; `load_into` puts a renewed pair into a live one."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """New connections use this pair from now on."""
        with pemfile.readable(self.cert_pem + b"\n" + self.key_pem) as path:
            context.load_cert_chain(path)

    def save(self, certificate: Path, key: Path) -> None:
        certificate.write_bytes(self.cert_pem)
        _write_private(key, self.key_pem)

    @classmethod
    def load(cls, certificate: Path, key: Path) -> KeyPair:
        return cls(certificate.read_bytes(), key.read_bytes())


@dataclass(frozen=True)
class Authority:
    """A certificate authority: what signs, and what clients have to trust."""

    pair: KeyPair
    retired: tuple[bytes, ...] = ()

    @classmethod
    def create(cls, common_name: str, *, days: int = AUTHORITY_DAYS, now: datetime | None = None) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(common_name)
        builder = (
            _builder(name, name, key.public_key(), days, now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(_pair(builder.sign(key, hashes.SHA256()), key))

    @classmethod
    def load(cls, certificate: Path, key: Path) -> Authority:
        return cls.from_pem(certificate.read_bytes(), key.read_bytes())

    @classmethod
    def from_pem(cls, bundle: bytes, key: bytes) -> Authority:
        """The first certificate of the bundle signs; the others are still trusted."""
        first, *others = [_pem(certificate) for certificate in x509.load_pem_x509_certificates(bundle)]
        return cls(KeyPair(first, key), tuple(others))

    def save(self, certificate: Path, key: Path) -> None:
        certificate.write_bytes(self.bundle)
        _write_private(key, self.pair.key_pem)

    @property
    def bundle(self) -> bytes:
        """What clients trust: this authority and those it took over from."""
        return b"".join((self.pair.cert_pem, *self.retired))

    def rotate(self, *, days: int = AUTHORITY_DAYS, now: datetime | None = None) -> Authority:
        """A new authority whose bundle keeps the earlier ones that have not expired."""
        common_name = self.pair.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        moment = now or datetime.now(UTC)
        alive = tuple(
            pem
            for pem in (self.pair.cert_pem, *self.retired)
            if x509.load_pem_x509_certificate(pem).not_valid_after_utc > moment
        )
        fresh = Authority.create(str(common_name), days=days, now=now)
        return Authority(fresh.pair, alive)

    def signed(self, pair: KeyPair) -> bool:
        """True if this authority, or one in its bundle, issued the pair."""
        for issuer in x509.load_pem_x509_certificates(self.bundle):
            try:
                pair.certificate.verify_directly_issued_by(issuer)
            except (ValueError, TypeError, InvalidSignature):
                continue
            return True
        return False

    def issue(
        self,
        dns_names: Sequence[str] = (),
        ips: Sequence[str] = (),
        days: int = LEAF_DAYS,
        *,
        common_name: str | None = None,
        organizations: Sequence[str] = (),
        client: bool = False,
        now: datetime | None = None,
    ) -> KeyPair:
        """A certificate for a server of these names and addresses (or, `client=True`, for a user)."""
        signer = serialization.load_pem_private_key(self.pair.key_pem, None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        issuer = self.pair.certificate
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(common_name or next(iter((*dns_names, *ips)), "apportion"), organizations)
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        builder = (
            _builder(subject, issuer.subject, key.public_key(), days, now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
                critical=False,
            )
        )
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in dns_names]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in ips]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return _pair(builder.sign(signer, hashes.SHA256()), key)


def _name(common_name: str, organizations: Sequence[str] = ()) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64]))
    return x509.Name(attributes)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int, now: datetime | None
) -> x509.CertificateBuilder:
    begin = (now or datetime.now(UTC)) - BACKDATE  # clocks of nodes differ a little
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + BACKDATE + timedelta(days=days))
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(_pem(certificate), private)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_private(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
