"""Paths that are no resources: version, health, discovery and OpenAPI."""

from __future__ import annotations

import platform
from typing import Any

from apportion.cluster.transport import HttpRequest, Response
from pocketkube.api import media_types, rendering, status
from pocketkube.api.discovery import openapi_v2, resource_lists
from pocketkube.api.discovery.openapi_v3 import OpenApi
from pocketkube.api.media_types import Accept
from pocketkube.api.registry import Registry

VERSION = {
    "major": "1",
    "minor": "34",
    "emulationMajor": "1",
    "emulationMinor": "34",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "33",
    "gitVersion": "v1.34.4+apportion",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": f"python{platform.python_version()}",
    "compiler": platform.python_implementation().lower(),
    "platform": "linux/amd64",
}
_HEALTH = ("healthz", "livez", "readyz")


class Paths:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._openapi = OpenApi(registry)

    def answer(self, request: HttpRequest) -> Response:  # noqa: PLR0911  one return per path
        if request.method not in ("GET", "HEAD"):
            raise status.method_not_allowed()
        parts = [part for part in request.path.split("/") if part]
        match parts:
            case [first, *_] if first in _HEALTH:
                return Response(200, {"content-type": "text/plain; charset=utf-8"}, b"ok")
            case ["version"]:
                return _json(VERSION)
            case ["api" | "apis"]:
                return self._root(request, core=parts == ["api"])
            case ["api", version]:
                return _found(resource_lists.resource_list(self._registry, "", version))
            case ["apis", group]:
                return _found(resource_lists.group(self._registry, group))
            case ["apis", group, version]:
                return _found(resource_lists.resource_list(self._registry, group, version))
            case ["openapi", *rest]:
                return self._describe(rest, request)
            case []:
                return _json({"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]})
            case _:
                raise status.unknown_path()

    def _describe(self, parts: list[str], request: HttpRequest) -> Response:
        match parts:
            case ["v2"]:
                accept = request.headers.get("accept", "")
                media, body = openapi_v2.document(self._registry, VERSION["gitVersion"], accept)
                return Response(200, {"content-type": media}, body)
            case ["v3"]:
                return _document(self._openapi.index())
            case ["v3", "api", version]:
                return _document(self._openapi.document("", version))
            case ["v3", "apis", group, version]:
                return _document(self._openapi.document(group, version))
            case _:
                raise status.unknown_path()

    def _root(self, request: HttpRequest, *, core: bool) -> Response:
        version = resource_lists.aggregated_version_wanted(request.headers.get("accept", ""))
        if version is None:
            return _json(resource_lists.api_versions() if core else resource_lists.group_list(self._registry))
        document = resource_lists.aggregated(self._registry, core=core, version=version)
        body = media_types.encode(document, media_types.JSON)
        return Response(200, {"content-type": resource_lists.aggregated_content_type(version), "vary": "Accept"}, body)


def _found(document: dict[str, Any] | None) -> Response:
    if document is None:
        raise status.unknown_path()
    return _json(document)


def _document(body: bytes | None) -> Response:
    if body is None:
        raise status.unknown_path()
    return Response(200, {"content-type": media_types.JSON}, body)


def _json(document: dict[str, Any]) -> Response:
    return rendering.answer(document, Accept())
