"""Discovery documents: the legacy lists and aggregated discovery.

Pure functions from the registry to documents. Clients that understand aggregated discovery learn
everything from `/api` and `/apis`; older ones walk through the group versions one by one.
"""

from __future__ import annotations

from typing import Any

from pocketkube.api.registry import Registry, Resource

AGGREGATED_VERSIONS = ("v2", "v2beta1")

_CHANGE = ("get", "patch", "update")
_PROXY = ("create", "delete", "get", "patch", "update")
_STREAM = ("create", "get")


def api_versions(server_address: str = "") -> dict[str, Any]:
    """`GET /api`, legacy."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    }


def group_list(registry: Registry) -> dict[str, Any]:
    """`GET /apis`, legacy."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(name, versions) for name, versions in _named_groups(registry)],
    }


def group(registry: Registry, name: str) -> dict[str, Any] | None:
    """`GET /apis/<group>`; None if no such group is served."""
    versions = registry.groups().get(name)
    if not name or not versions:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def resource_list(registry: Registry, group: str, version: str) -> dict[str, Any] | None:
    """`GET /api/v1` and `GET /apis/<group>/<version>`; None if no such group version is served."""
    resources = registry.in_version(group, version)
    if not resources:
        return None
    listed: list[dict[str, Any]] = []
    for resource in resources:
        listed.append(_legacy(resource))
        listed += [_legacy_subresource(resource, name) for name in sorted(resource.subresources)]
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def aggregated(registry: Registry, *, core: bool, version: str = "v2") -> dict[str, Any]:
    """`GET /api` (core) and `GET /apis` (the rest) in one document each."""
    groups = [("", ["v1"])] if core else _named_groups(registry)
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [_aggregated_group(registry, name, versions) for name, versions in groups],
    }


def aggregated_content_type(version: str) -> str:
    return f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"


def aggregated_version_wanted(accept: str) -> str | None:
    """The first version of aggregated discovery that an Accept header prefers over the legacy lists."""
    for offer in accept.split(","):
        media, *parameters = (part.strip() for part in offer.split(";"))
        wanted = dict(parameter.partition("=")[::2] for parameter in parameters)
        if wanted.get("as") == "APIGroupDiscoveryList":
            if wanted.get("g") == "apidiscovery.k8s.io" and wanted.get("v") in AGGREGATED_VERSIONS:
                return wanted["v"] if media == "application/json" else None
        elif media in ("application/json", "*/*"):
            return None
    return None


def subresource_facts(resource: Resource, name: str) -> tuple[str, str, str, tuple[str, ...]]:
    """Group, version, kind and verbs of a subresource."""
    own = (resource.group, resource.version, resource.kind)
    special: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
        "scale": ("autoscaling", "v1", "Scale", _CHANGE),
        "eviction": ("policy", "v1", "Eviction", ("create",)),
        "binding": ("", "v1", "Binding", ("create",)),
        "token": ("authentication.k8s.io", "v1", "TokenRequest", ("create",)),
        "log": (*own, ("get",)),
        "finalize": (*own, ("update",)),
        "attach": ("", "v1", "PodAttachOptions", _STREAM),
        "exec": ("", "v1", "PodExecOptions", _STREAM),
        "portforward": ("", "v1", "PodPortForwardOptions", _STREAM),
        "proxy": ("", "v1", f"{resource.kind}ProxyOptions", _PROXY),
    }
    return special.get(name, (*own, _CHANGE))


def _named_groups(registry: Registry) -> list[tuple[str, list[str]]]:
    """All groups but core: the built-in ones in their order, then custom ones by name."""
    builtin = {each.group for each in registry if not each.custom}
    groups = [(name, versions) for name, versions in registry.groups().items() if name]
    return [each for each in groups if each[0] in builtin] + sorted(each for each in groups if each[0] not in builtin)


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    served = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": served, "preferredVersion": served[0]}


def _legacy(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return entry


def _legacy_subresource(resource: Resource, name: str) -> dict[str, Any]:
    group, version, kind, verbs = subresource_facts(resource, name)
    entry: dict[str, Any] = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": kind,
        "verbs": list(verbs),
    }
    if (group, version) != (resource.group, resource.version):
        entry |= {"group": group, "version": version}
    return entry


def _aggregated_group(registry: Registry, name: str, versions: list[str]) -> dict[str, Any]:
    return {
        "metadata": {"name": name} if name else {},
        "versions": [
            {
                "version": version,
                "freshness": "Current",
                "resources": [_aggregated(resource) for resource in registry.in_version(name, version)],
            }
            for version in versions
        ],
    }


def _aggregated(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": _response_kind(resource.group, resource.version, resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [_aggregated_subresource(resource, name) for name in sorted(resource.subresources)]
    return entry


def _aggregated_subresource(resource: Resource, name: str) -> dict[str, Any]:
    group, version, kind, verbs = subresource_facts(resource, name)
    return {"subresource": name, "responseKind": _response_kind(group, version, kind), "verbs": list(verbs)}


def _response_kind(group: str, version: str, kind: str) -> dict[str, str]:
    return {"group": group, "version": version, "kind": kind}
