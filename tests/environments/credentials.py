"""Certificates, tokens and kubeconfigs of a control plane that lives for one test run."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


@dataclass(frozen=True)
class Credentials:
    """Files under one folder; tokens by user name."""

    folder: Path
    tokens: dict[str, str]

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def server_certificate(self) -> Path:
        return self.folder / "server.crt"

    @property
    def server_key(self) -> Path:
        return self.folder / "server.key"

    @property
    def webhook_client(self) -> Path:
        """Certificate and key with which the API server authenticates itself to webhooks."""
        return self.folder / "webhook-client.pem"

    @property
    def service_account_key(self) -> Path:
        return self.folder / "service-accounts.key"

    @property
    def token_file(self) -> Path:
        return self.folder / "tokens.csv"

    def kubeconfig(self, user: str, server: str, name: str) -> Path:
        """A self-contained kubeconfig for one of the users."""
        path = self.folder / f"{name}.kubeconfig"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "real", "cluster": {"server": server, "certificate-authority": str(self.ca)}}],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": user}}],
            "current-context": "real",
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(content))
        return path


def make(folder: Path, *, addresses: tuple[str, ...], users: dict[str, tuple[str, ...]]) -> Credentials:
    """`users`: name to groups."""
    folder.mkdir(parents=True, mode=0o700)
    made = Credentials(folder, {user: secrets.token_hex(16) for user in users})
    ca_key, ca = _certificate("apportion test authority", None, None, ())
    key, certificate = _certificate("kube-apiserver", ca_key, ca, addresses)
    made.ca.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    made.server_certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _save_key(made.server_key, key)
    client_key, client = _certificate("kube-apiserver-webhook-client", ca_key, ca, ())
    _save_key(made.webhook_client, client_key)
    with made.webhook_client.open("ab") as file:
        file.write(client.public_bytes(serialization.Encoding.PEM))
    _save_key(made.service_account_key, ec.generate_private_key(ec.SECP256R1()))
    rows = [f'{made.tokens[user]},{user},{user},"{",".join(groups)}"\n' for user, groups in users.items()]
    made.token_file.touch(mode=0o600)
    made.token_file.write_text("".join(rows))
    return made


def _certificate(
    name: str, signer: ec.EllipticCurvePrivateKey | None, issuer: x509.Certificate | None, addresses: tuple[str, ...]
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer is not None:
        hosts = [x509.DNSName(host) for host in SERVER_NAMES]
        ips = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        builder = builder.add_extension(x509.SubjectAlternativeName([*hosts, *ips]), critical=False)
    return key, builder.sign(signer or key, hashes.SHA256())


def _save_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
