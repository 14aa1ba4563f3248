"""How to reach a cluster: the service account of a pod, or a kubeconfig, made into a transport.

Kubeconfigs: token, token file, client certificate, basic authentication and exec plugins; several files
in `KUBECONFIG` are merged as kubectl does (the first one to name something wins).
"""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from apportion.cluster import credentials, input_files, kubeconfig_schema, pemfile, service_account
from apportion.cluster.errors import ConfigError
from apportion.cluster.transport import Credentials, HttpTransport, Transport


def connect() -> Transport:
    """In a pod its service account, elsewhere the kubeconfig."""
    return in_cluster() if os.environ.get("KUBERNETES_SERVICE_HOST") else from_kubeconfig()


def in_cluster() -> Transport:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("KUBERNETES_SERVICE_HOST is not set: this process does not run in a pod")
    folder = Path(os.environ.get(service_account.DIRECTORY_ENV, service_account.DIRECTORY))
    try:
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    except OSError as error:
        raise ConfigError(f"cannot read ca.crt in the service account directory {folder}: {error}") from error
    address = f"[{host}]" if ":" in host else host
    return HttpTransport(f"https://{address}:{port}", tls=tls, credentials=credentials.token_file(folder / "token"))


def from_kubeconfig(path: str | Path | None = None, *, context: str | None = None) -> Transport:
    config = load(path)
    chosen = context or config.get("current-context")
    if not chosen:
        raise ConfigError("the kubeconfig has no current-context: set one with kubectl config use-context")
    selected = _entry(config, "contexts", chosen, "context")
    cluster = _entry(config, "clusters", selected.get("cluster"), "cluster")
    user = _entry(config, "users", selected["user"], "user") if selected.get("user") else {}
    server = cluster.get("server")
    if not server:
        raise ConfigError(f"cluster {selected.get('cluster')!r} of the kubeconfig has no server")
    if cluster.get("proxy-url"):
        raise ConfigError(f"cluster {selected.get('cluster')!r} uses proxy-url, which is not supported")
    _check_server(server)
    tls = _tls(cluster, user) if server.startswith("https") else None
    return HttpTransport(
        server,
        tls=tls,
        credentials=_credentials(user, cluster, tls),
        server_hostname=cluster.get("tls-server-name"),
    )


def current_namespace(path: str | Path | None = None) -> str:
    config = load(path)
    selected = _entry(config, "contexts", config.get("current-context"), "context")
    return str(selected.get("namespace") or "default")


def load(path: str | Path | None = None) -> dict[str, Any]:
    """One kubeconfig out of a file, or of all files that KUBECONFIG names; relative paths made absolute."""
    merged: dict[str, Any] = {"clusters": [], "users": [], "contexts": []}
    files = _files(path)
    for file in files:
        config = _read(file)
        _absolute(config, file.parent)
        for section in ("clusters", "users", "contexts"):
            known = {entry["name"] for entry in merged[section]}
            merged[section] += [entry for entry in config.get(section) or [] if entry["name"] not in known]
        merged.setdefault("current-context", config["current-context"]) if config.get("current-context") else None
    return merged


def _files(path: str | Path | None) -> list[Path]:
    if path is not None:
        return [_existing(_expanded(path))]
    listed = [_expanded(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        found = [file for file in listed if file.exists()]
        return found or [_existing(listed[0])]
    return [_existing(_expanded("~/.kube/config"))]


def _expanded(path: str | Path) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111  unlike that of Path it does not raise without a home


def _existing(path: Path) -> Path:
    try:
        found = path.exists()
    except (OSError, ValueError) as error:
        raise ConfigError(f"kubeconfig {str(path)!r} cannot be read: {error}") from error
    if not found:
        raise ConfigError(f"kubeconfig {path} does not exist: set KUBECONFIG, or start a cluster with `apportion up`")
    return path


def _read(file: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(input_files.text(file))
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the kubeconfig {file}: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"the kubeconfig {file} is not a mapping")
    try:
        msgspec.convert(config, kubeconfig_schema.Kubeconfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the kubeconfig {file} is not valid: {error}") from error
    return config


def _absolute(config: dict[str, Any], folder: Path) -> None:
    paths = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
    for section, field in (("clusters", "cluster"), ("users", "user")):
        for entry in config.get(section) or []:
            body = entry.get(field) or {}
            for key in paths:
                if body.get(key):
                    body[key] = str(folder / body[key])
            command = (body.get("exec") or {}).get("command", "")
            if "/" in command:
                body["exec"]["command"] = str(folder / command)


def _entry(config: Mapping[str, Any], section: str, name: str | None, field: str) -> dict[str, Any]:
    for entry in config.get(section) or []:
        if entry.get("name") == name:
            body: dict[str, Any] = entry.get(field) or {}
            return body
    raise ConfigError(f"the kubeconfig does not define {field} {name!r}")


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(
            cafile=cluster.get("certificate-authority"),
            cadata=_decoded(cluster.get("certificate-authority-data")),
        )
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        load_client_certificate(
            context,
            _decoded(user.get("client-certificate-data")) or _text(user.get("client-certificate")),
            _decoded(user.get("client-key-data")) or _text(user.get("client-key")),
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"invalid certificate in the kubeconfig: {error}") from error
    return context


def _check_server(server: str) -> None:
    try:
        parts = urlsplit(server)
        right = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right or not server.isprintable() or " " in server:
        raise ConfigError(f"server {server!r} of the kubeconfig is not a URL: use https://HOST:PORT")


def load_client_certificate(context: ssl.SSLContext, certificate: str | None, key: str | None) -> None:
    if certificate:
        with pemfile.readable(f"{certificate}\n{key or ''}".encode()) as path:
            context.load_cert_chain(path)


def _credentials(user: Mapping[str, Any], cluster: Mapping[str, Any], tls: ssl.SSLContext | None) -> Credentials | None:
    if user.get("token"):
        if not (user["token"].isascii() and user["token"].isprintable()):
            raise ConfigError("the token in the kubeconfig has characters that no token has")
        return credentials.fixed(f"Bearer {user['token']}")
    if user.get("tokenFile"):
        return credentials.token_file(Path(user["tokenFile"]))
    if user.get("username"):
        pair = f"{user['username']}:{user.get('password', '')}".encode()
        return credentials.fixed("Basic " + base64.b64encode(pair).decode())
    if user.get("exec"):
        return credentials.ExecPlugin(
            user["exec"],
            cluster=cluster,
            on_certificate=lambda cert, key: load_client_certificate(tls, cert, key) if tls else None,
        )
    if user.get("auth-provider"):
        raise ConfigError("auth-provider in the kubeconfig is no longer supported by Kubernetes: use an exec plugin")
    return None


def _decoded(data: str | None) -> str | None:
    return base64.b64decode(data).decode() if data else None


def _text(path: str | None) -> str | None:
    return input_files.text(Path(path)) if path else None
