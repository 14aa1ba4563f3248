"""Rules for containers: names, ports, environment, mounts, resources, probes."""

from __future__ import annotations

import re
from typing import Any

from apportion.apis import quantity
from pocketkube.api.validation import name_rules, problems
from pocketkube.api.validation.problems import NOT_NEGATIVE, Problems

Obj = dict[str, Any]

PROTOCOLS = ("SCTP", "TCP", "UDP")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_STANDARD_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_HIGHEST_ID = 2**31 - 1
_ENV_NAME = re.compile(r"[ -<>-~]+")
_ENV_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_FIELD_PATHS = frozenset(
    {
        *("metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations"),
        *("spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP"),
        "status.podIPs",
    }
)
_KEYED_FIELD = re.compile(r"metadata\.(labels|annotations)\['(?P<key>[^']+)'\]")
_NATIVE_DOMAIN = "kubernetes.io/"


def container(found: Problems, path: str, obj: Obj, volumes: set[str], *, host_network: bool = False) -> None:
    name = obj.get("name") or ""
    if not name:
        found.required(f"{path}.name")
    else:
        found.all_of(f"{path}.name", name, name_rules.dns_label(name))
    if not obj.get("image"):
        found.required(f"{path}.image")
    elif obj["image"] != obj["image"].strip():
        found.invalid(f"{path}.image", obj["image"], "must not have leading or trailing whitespace")
    found.one_of(f"{path}.terminationMessagePolicy", obj.get("terminationMessagePolicy"), _MESSAGE_POLICIES)
    _ports(found, f"{path}.ports", obj.get("ports") or [], host_network=host_network)
    _environment(found, f"{path}.env", obj.get("env") or [])
    _mounts(found, f"{path}.volumeMounts", obj.get("volumeMounts") or [], volumes)
    found.one_of(f"{path}.imagePullPolicy", obj.get("imagePullPolicy"), _PULL_POLICIES)
    resources(found, f"{path}.resources", obj.get("resources") or {})
    _security(found, f"{path}.securityContext", obj.get("securityContext") or {})


def probes(found: Problems, path: str, obj: Obj) -> None:
    """Of a container that runs as long as its pod."""
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in obj:
            _probe(found, f"{path}.{name}", obj[name])
            successes = obj[name].get("successThreshold", 1)
            if name != "readinessProbe" and successes != 1:
                found.invalid(f"{path}.{name}.successThreshold", successes, "must be 1")
    for name, hook in (obj.get("lifecycle") or {}).items():
        if isinstance(hook, dict):
            _handler(found, f"{path}.lifecycle.{name}", hook, (*_HANDLERS[:3], "sleep"))


def resources(found: Problems, path: str, given: Obj) -> None:
    """Amounts are not negative, requests do not exceed limits, devices are whole and never overcommitted."""
    limits, requests = given.get("limits") or {}, given.get("requests") or {}
    for name, text in limits.items():
        _amount(found, f"{path}.limits[{name}]", name, text)
    huge = [name for name in (*limits, *requests) if name.startswith("hugepages-")]
    for name, text in requests.items():
        _amount(found, f"{path}.requests[{name}]", name, text)
        limit = limits.get(name)
        if limit is None:
            if is_extended(name) or name.startswith("hugepages-"):
                found.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif (is_extended(name) or name in huge) and quantity.nanos(limit) != quantity.nanos(text):
            found.invalid(f"{path}.requests", text, f"must be equal to {name} limit of {limit}")
        elif quantity.nanos(text) > quantity.nanos(limit):
            found.invalid(f"{path}.requests", text, f"must be less than or equal to {name} limit of {limit}")
    if huge and not any(name in amounts for amounts in (limits, requests) for name in ("cpu", "memory")):
        found.forbidden(path, "HugePages require cpu or memory")


def is_extended(name: str) -> bool:
    """A device or another resource that is only counted."""
    return "/" in name and _NATIVE_DOMAIN not in name and not name.startswith("requests.")


def _amount(found: Problems, path: str, name: str, text: str) -> None:
    wrong = name_rules.qualified_name(name)
    found.all_of(path, name, wrong)
    if "/" not in name and name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
        found.invalid(path, name, "must be a standard resource type or fully qualified")
        found.invalid(path, name, "must be a standard resource for containers")
    elif "/" in name and is_extended(name) and name_rules.qualified_name(f"requests.{name}"):
        found.invalid(path, name, "doesn't follow extended resource name standard")
    amount = quantity.nanos(text)
    if amount < 0:
        found.invalid(path, text, NOT_NEGATIVE)
    elif is_extended(name) and amount % quantity.NANOS:
        found.invalid(path, text, "must be an integer")


def _ports(found: Problems, path: str, ports: list[Obj], *, host_network: bool) -> None:
    names: set[str] = set()
    for index, port in enumerate(ports):
        here = f"{path}[{index}]"
        if name := port.get("name"):
            wrong = name_rules.port_name(name)
            found.all_of(f"{here}.name", name, wrong)
            if not wrong and name in names:
                found.duplicate(f"{here}.name", name)
            names.add(name)
        number, host_port = port.get("containerPort", 0), port.get("hostPort", 0)
        if number == 0:
            found.required(f"{here}.containerPort")
        else:
            found.in_range(f"{here}.containerPort", number, 1, problems.HIGHEST_PORT)
        if host_port:
            found.in_range(f"{here}.hostPort", host_port, 1, problems.HIGHEST_PORT)
        if host_network and host_port != number:
            found.invalid(f"{here}.hostPort", host_port, "must match `containerPort` when `hostNetwork` is true")
        found.one_of(f"{here}.protocol", port.get("protocol"), PROTOCOLS)


def _environment(found: Problems, path: str, variables: list[Obj]) -> None:
    for index, variable in enumerate(variables):
        here, name = f"{path}[{index}]", variable.get("name") or ""
        if not name:
            found.required(f"{here}.name")
        elif not _ENV_NAME.fullmatch(name):
            why = "a valid environment variable name must consist only of printable ASCII characters other than '='"
            found.invalid(f"{here}.name", name, why)
        if "valueFrom" in variable:
            _environment_source(found, f"{here}.valueFrom", variable)


def _environment_source(found: Problems, path: str, variable: Obj) -> None:
    source = variable["valueFrom"]
    given = [name for name in _ENV_SOURCES if name in source]
    if field := source.get("fieldRef"):
        _field_path(found, f"{path}.fieldRef", field)
    if (amount := source.get("resourceFieldRef")) is not None and not amount.get("resource"):
        found.required(f"{path}.resourceFieldRef.resource")
    for name in ("configMapKeyRef", "secretKeyRef"):
        if name in source:
            key = source[name].get("key") or ""
            if not source[name].get("name"):
                found.required(f"{path}.{name}.name")
            if not key:
                found.required(f"{path}.{name}.key")
            else:
                found.all_of(f"{path}.{name}.key", key, name_rules.config_key(key))
    if not given:
        why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        found.invalid(path, "", why)
    elif variable.get("value"):
        found.invalid(path, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        found.invalid(path, "", "may not have more than one field specified at a time")


def _field_path(found: Problems, path: str, field: Obj) -> None:
    given = field.get("fieldPath") or ""
    keyed = _KEYED_FIELD.fullmatch(given)
    if not given:
        found.required(f"{path}.fieldPath")
    elif keyed:
        key = keyed["key"]
        found.all_of(f"{path}.fieldPath", key, name_rules.qualified_name(key.lower()))
    elif given not in _FIELD_PATHS:
        why = f"error converting fieldPath: field label not supported: {given}"
        found.invalid(f"{path}.fieldPath", given, why)


def _mounts(found: Problems, path: str, mounts: list[Obj], volumes: set[str]) -> None:
    places: set[str] = set()
    for index, mount in enumerate(mounts):
        here, name, place = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            found.required(f"{here}.name")
        elif name not in volumes:
            found.not_found(f"{here}.name", name)
        if not place:
            found.required(f"{here}.mountPath")
        elif place in places:
            found.invalid(f"{here}.mountPath", place, "must be unique")
        places.add(place)
        if sub := mount.get("subPath"):
            if sub.startswith("/"):
                found.invalid(f"{here}.subPath", sub, "must be a relative path")
            if ".." in sub.split("/"):
                found.invalid(f"{here}.subPath", sub, "must not contain '..'")


def _security(found: Problems, path: str, context: Obj) -> None:
    for name in ("runAsUser", "runAsGroup"):
        if name in context:
            found.in_range(f"{path}.{name}", context[name], 0, _HIGHEST_ID)
    if context.get("privileged") and context.get("allowPrivilegeEscalation") is False:
        why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        found.invalid(path, {"Privileged": True, "AllowPrivilegeEscalation": False}, why)


def _probe(found: Problems, path: str, probe: Obj) -> None:
    _handler(found, path, probe, _HANDLERS)
    for name in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        found.not_negative(f"{path}.{name}", probe.get(name))


def _handler(found: Problems, path: str, handler: Obj, kinds: tuple[str, ...]) -> None:
    given = [name for name in kinds if name in handler]
    if not given:
        found.required(path, "must specify a handler type")
    for name in given[1:]:
        found.forbidden(f"{path}.{name}", "may not specify more than 1 handler type")
    match given[:1]:
        case ["exec"]:
            if not handler["exec"].get("command"):
                found.required(f"{path}.exec.command")
        case ["httpGet"]:
            get = handler["httpGet"]
            if not get.get("path"):
                found.required(f"{path}.httpGet.path")
            found.port(f"{path}.httpGet.port", get.get("port", 0))
            found.one_of(f"{path}.httpGet.scheme", get.get("scheme"), ("HTTP", "HTTPS"))
        case ["tcpSocket"]:
            found.port(f"{path}.tcpSocket.port", handler["tcpSocket"].get("port", 0))
        case ["grpc"]:
            found.port(f"{path}.grpc.port", handler["grpc"].get("port", 0))
