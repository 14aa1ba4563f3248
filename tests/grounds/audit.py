"""What a test left behind in a cluster that others use after it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.grounds.api import JSON, Api

# Made by Kubernetes itself, at any time.
_NOISE = {"events", "leases", "componentstatuses", "endpoints", "endpointslices", "ipaddresses", "controllerrevisions"}


def inventory(api: Api, *, leave_out: str) -> set[str]:
    """The paths of all objects that no controller owns, except those of the namespace `leave_out` and itself."""
    found = set()
    for path, resource in _resources(api):
        for item in api.items(f"{path}/{resource}"):
            meta = item["metadata"]
            namespace = meta.get("namespace")
            if leave_out in (namespace, meta["name"]) or _kept_by_kubernetes(resource, meta):
                continue
            where = f"{path}/namespaces/{namespace}/{resource}" if namespace else f"{path}/{resource}"
            found.add(f"{where}/{meta['name']}")
    return found


def left_behind(api: Api, before: set[str], *, namespace: str, within: float = 20) -> list[str]:
    """Paths of what came during the test and did not go with it. Claims follow their pods, so they have a while."""
    deadline = time.monotonic() + within
    while left := inventory(api, leave_out=namespace) - before:
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return sorted(left)


def _kept_by_kubernetes(resource: str, meta: JSON) -> bool:
    if "deletionTimestamp" in meta or any(owner.get("controller") for owner in meta.get("ownerReferences", ())):
        return True
    return (resource, meta["name"]) in {("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")}


def _resources(api: Api) -> Iterator[tuple[str, str]]:
    """Every resource that can be listed and deleted, in its preferred version."""
    paths = ["/api/v1"]
    paths += [f"/apis/{group['preferredVersion']['groupVersion']}" for group in api.get("/apis")["groups"]]
    for path in paths:
        for resource in api.get(path)["resources"]:
            listable = {"list", "delete"} <= set(resource["verbs"])
            if listable and "/" not in resource["name"] and resource["name"] not in _NOISE:
                yield path, resource["name"]
