"""The types of the fields of a kubeconfig that are read, as kubectl checks them; other fields may be anything."""

from __future__ import annotations

from typing import Any

import msgspec


class ClusterBody(msgspec.Struct, rename="kebab"):
    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None


class EnvironmentVariable(msgspec.Struct):
    name: str
    value: str


class ExecBody(msgspec.Struct, rename="camel"):
    api_version: str | None = None
    command: str | None = None
    args: list[str] | None = None
    env: list[EnvironmentVariable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None


class UserBody(msgspec.Struct, rename="kebab"):
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    username: str | None = None
    password: str | None = None
    exec: ExecBody | None = None
    auth_provider: dict[str, Any] | None = None


class ContextBody(msgspec.Struct):
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


class NamedCluster(msgspec.Struct):
    name: str
    cluster: ClusterBody | None = None


class NamedUser(msgspec.Struct):
    name: str
    user: UserBody | None = None


class NamedContext(msgspec.Struct):
    name: str
    context: ContextBody | None = None


class Kubeconfig(msgspec.Struct, rename="kebab"):
    clusters: list[NamedCluster] | None = None
    users: list[NamedUser] | None = None
    contexts: list[NamedContext] | None = None
    current_context: str | None = None
