"""The environment of a container, and how its words and variables refer to it."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pocketkube.kubelet.containers import downward_api

Json = dict[str, Any]
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.\-][\w.\-]*)\)")
_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


class ConfigError(Exception):
    """A container whose settings cannot be resolved yet: shown as CreateContainerConfigError."""


class Settings(Protocol):
    """ConfigMaps and Secrets, by namespace and name."""

    def config_map(self, namespace: str, name: str) -> Json | None: ...

    def secret(self, namespace: str, name: str) -> Json | None: ...


@dataclass(frozen=True)
class Surroundings:
    """What a container's environment is made from, besides its own spec."""

    pod: Mapping[str, Any]
    settings: Settings
    allocatable: Mapping[str, Any]
    api_host: str
    api_port: int


def environment(container: Mapping[str, Any], around: Surroundings) -> dict[str, str]:
    """All variables, later ones over earlier ones."""
    env = service_variables(around)
    for source in container.get("envFrom") or []:
        env |= _env_from(source, around)
    for entry in container.get("env") or []:
        value = _value(entry, container["name"], around, env)
        if value is not None:
            env[entry["name"]] = value
    return env


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` as Kubernetes expands it: unknown names stay, `$$` stands for `$`."""

    def replace(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else env.get(match[1], match[0])

    return _REFERENCE.sub(replace, text)


def expand_strictly(text: str, env: Mapping[str, str]) -> str:
    """As `expand`, for the path of a volume: a name without a value is an error."""
    missing = {match[1] for match in _REFERENCE.finditer(text) if match[1] and not env.get(match[1])}
    if missing:
        raise ConfigError(f"missing value for {', '.join(sorted(missing))}")
    return expand(text, env)


def service_variables(around: Surroundings) -> dict[str, str]:
    """Where the API server is."""
    host, port = around.api_host, str(around.api_port)
    return {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICE_PORT_HTTPS": port,
        "KUBERNETES_PORT": f"tcp://{host}:{port}",
    }


def _env_from(source: Mapping[str, Any], around: Surroundings) -> dict[str, str]:
    kind = "configMapRef" if "configMapRef" in source else "secretRef"
    reference = source.get(kind) or {}
    data = _data(kind, reference, around)
    prefix = source.get("prefix", "")
    return {prefix + key: value for key, value in (data or {}).items() if _NAME.fullmatch(prefix + key)}


def _data(kind: str, reference: Mapping[str, Any], around: Surroundings) -> dict[str, str] | None:
    """The texts of a ConfigMap or Secret; None if it is missing and may be."""
    namespace, name = around.pod["metadata"]["namespace"], reference.get("name", "")
    if kind.startswith("configMap"):
        found = around.settings.config_map(namespace, name)
        data = dict((found or {}).get("data") or {})
    else:
        found = around.settings.secret(namespace, name)
        data = {
            key: base64.b64decode(value).decode(errors="replace")
            for key, value in ((found or {}).get("data") or {}).items()
        }
    if found is None:
        if reference.get("optional"):
            return None
        raise ConfigError(f'{"configmap" if kind.startswith("configMap") else "secret"} "{name}" not found')
    return data


def _value(entry: Mapping[str, Any], container: str, around: Surroundings, env: Mapping[str, str]) -> str | None:
    source = entry.get("valueFrom")
    if not source:
        return expand(entry.get("value", ""), env)
    try:
        if "fieldRef" in source:
            return downward_api.field_value(around.pod, source["fieldRef"]["fieldPath"])
        if "resourceFieldRef" in source:
            reference = source["resourceFieldRef"]
            return downward_api.resource_value(around.pod, reference, around.allocatable, container=container)
    except downward_api.FieldReferenceError as error:
        raise ConfigError(str(error)) from None
    for kind, title in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        if kind in source:
            return _key_value(kind, title, source[kind], around)
    return ""


def _key_value(kind: str, title: str, reference: Mapping[str, Any], around: Surroundings) -> str | None:
    data = _data(kind, reference, around)
    key = reference["key"]
    if data is not None and key in data:
        return data[key]
    if reference.get("optional"):
        return None
    namespace = around.pod["metadata"]["namespace"]
    raise ConfigError(f"couldn't find key {key} in {title} {namespace}/{reference.get('name', '')}")
