"""Paths of the Kubernetes API: from `/apis/apps/v1/namespaces/x/deployments/y/scale` to what is meant."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pocketkube.api import status
from pocketkube.api.registry import Registry, Resource
from pocketkube.api.request_attributes import RequestInfo
from pocketkube.api.storage import selectors

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get", "HEAD": "get"}
_TRUE = ("1", "true", "True", "TRUE", "t", "T")


@dataclass(frozen=True, slots=True)
class Route:
    """A request on a resource: the collection, one object, or a part of it."""

    resource: Resource
    info: RequestInfo
    path_tail: str = ""  # what follows a subresource (proxy)

    @property
    def namespace(self) -> str:
        return self.info.namespace

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def subresource(self) -> str:
        return self.info.subresource

    @property
    def verb(self) -> str:
        return self.info.verb


def is_true(value: str | None) -> bool:
    return value in _TRUE


def resolve(registry: Registry, method: str, path: str, query: dict[str, str]) -> Route | None:
    """The route of a resource path, or None if the path names no resource; raises 404 for unknown ones."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return None
    legacy_watch = rest[0] == "watch" and len(rest) > 1
    if legacy_watch:
        rest = rest[1:]
    namespace, plural, name, subresource, tail = _split(registry, group, version, rest)
    resource = registry.find(group, version, plural)
    if resource is None or (namespace and not resource.namespaced and plural != "namespaces"):
        raise status.unknown_path()
    if resource.namespaced and name and not namespace:
        raise status.unknown_path()
    if subresource and subresource not in resource.subresources:
        raise status.not_found(resource, name) if resource.custom else status.unknown_path()
    verb = _verb(method, name, legacy_watch or is_true(query.get("watch")))
    return Route(resource, RequestInfo(verb, path, group, version, plural, subresource, namespace, name), tail)


def for_authorization(info: RequestInfo, query: dict[str, str]) -> RequestInfo:
    """A list or watch of one object by its name counts as a request for that object, so roles can name it."""
    if info.name or info.verb not in ("list", "watch") or not query.get("fieldSelector"):
        return info
    fields = selectors.parse_fields(query["fieldSelector"])
    return replace(info, name=selectors.Selection(fields=fields).single_name or "")


def _split(registry: Registry, group: str, version: str, rest: list[str]) -> tuple[str, str, str, str, str]:
    """namespace, plural, name, subresource and what follows."""
    namespace = ""
    if rest[0] == "namespaces" and not group:
        # /namespaces/x is a Namespace; /namespaces/x/pods lies within it; status and finalize are its own parts
        if len(rest) <= 2 or (len(rest) == 3 and rest[2] in ("status", "finalize")):  # noqa: PLR2004
            name = rest[1] if len(rest) > 1 else ""
            return name, "namespaces", name, rest[2] if len(rest) > 2 else "", ""  # noqa: PLR2004
        namespace, rest = rest[1], rest[2:]
    elif rest[0] == "namespaces" and len(rest) > 2 and registry.find(group, version, "namespaces") is None:  # noqa: PLR2004
        namespace, rest = rest[1], rest[2:]
    padded = [*rest, "", "", ""]
    return namespace, padded[0], padded[1], padded[2], "/".join(rest[3:])


def _verb(method: str, name: str, watch: bool) -> str:  # noqa: FBT001
    verb = _VERBS.get(method.upper())
    if verb is None:
        raise status.method_not_allowed()
    if verb == "get" and watch:
        return "watch"
    if not name:
        return {"get": "list", "delete": "deletecollection"}.get(verb, verb)
    return verb
