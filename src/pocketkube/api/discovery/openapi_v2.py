"""OpenAPI v2, as little of it as old clients need: which kinds there are and that their PATCH takes fieldValidation.

Newer clients read v3 and come here only with kinds that do not exist; a 404 would then hide the better error.
They read the protobuf form, whose field numbers are those of gnostic's OpenAPIv2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from pocketkube.api.registry import Registry, Resource

JSON = "application/json"
PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_KIND = "x-kubernetes-group-version-kind"
_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force")


def document(registry: Registry, version: str, accept: str) -> tuple[str, bytes]:
    """Content type and body for a client."""
    if "protobuf" in accept:
        return PROTOBUF, _protobuf(registry, version)
    paths = {path: {"patch": _operation(resource)} for path, resource in _patched(registry)}
    info = {"title": "Kubernetes", "version": version}
    return JSON, msgspec.json.encode({"swagger": "2.0", "info": info, "paths": paths, "definitions": {}})


def _patched(registry: Registry) -> Iterator[tuple[str, Resource]]:
    for resource in registry:
        if "patch" in resource.verbs:
            root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
            scope = "/namespaces/{namespace}" if resource.namespaced else ""
            yield f"{root}{scope}/{resource.plural}/{{name}}", resource


def _kind(resource: Resource) -> dict[str, str]:
    return {"group": resource.group, "kind": resource.kind, "version": resource.version}


def _operation(resource: Resource) -> dict[str, Any]:
    parameters = [{"name": name, "in": "query", "type": "string"} for name in _PARAMETERS]
    return {"parameters": parameters, "responses": {"200": {"description": "OK"}}, _KIND: _kind(resource)}


def _protobuf(registry: Registry, version: str) -> bytes:
    parameters = b"".join(_message(8, _parameter(name)) for name in _PARAMETERS)
    items = b""
    for path, resource in _patched(registry):
        kind = msgspec.json.encode(_kind(resource))  # JSON is YAML
        extension = _message(1, _KIND.encode()) + _message(2, _message(2, kind))
        operation = parameters + _message(13, extension)
        items += _message(2, _message(1, path.encode()) + _message(2, _message(8, operation)))
    info = _message(1, b"Kubernetes") + _message(2, version.encode())
    return _message(1, b"2.0") + _message(2, info) + _message(8, items)


def _parameter(name: str) -> bytes:
    query = _message(2, b"query") + _message(4, name.encode()) + _message(6, b"string")
    return _message(1, _message(2, _message(3, query)))


def _message(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:  # noqa: PLR2004  seven bits per byte
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
