"""What a test left behind in a cluster that others use after it, and what our components were refused."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator

from tests.environments.api import JSON, Api, RefusedError

SHARED = "apportion-test/shared"
"""A label: this object outlives the test that made it, because others use it too."""

_REFUSED = re.compile(
    r"refused (system:serviceaccount:(?:das-operator|gpu-webhook|kai-scheduler|kai-resource-reservation):.*)"
)
_TERMINATING = (
    "because it is being terminated"  # an event for a pod whose namespace is being deleted: no lack of rights
)
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
# Made by Kubernetes itself, at any time.
_NOISE = {
    "apiservices",
    "events",
    "leases",
    "componentstatuses",
    "endpoints",
    "endpointslices",
    "ipaddresses",
    "controllerrevisions",
}


def inventory(api: Api, *, leave_out: str) -> set[str]:
    """The paths of all objects that no controller owns, except those of the namespace `leave_out` and itself.

    What is in a namespace that is being deleted goes with it.
    """
    namespaces = (item["metadata"] for item in api.items("/api/v1/namespaces"))
    going = {meta["name"] for meta in namespaces if "deletionTimestamp" in meta} | {leave_out}
    found = set()
    for path, resource in _resources(api):
        for meta in _metadata(api, f"{path}/{resource}"):
            namespace = meta.get("namespace")
            if namespace in going or meta["name"] == leave_out or _kept(resource, meta):
                continue
            where = f"{path}/namespaces/{namespace}/{resource}" if namespace else f"{path}/{resource}"
            found.add(f"{where}/{meta['name']}")
    return found


def left_behind(api: Api, before: set[str], *, namespace: str, within: float = 20) -> tuple[list[str], set[str]]:
    """Paths of what came during the test and did not go with it, and of all there is.

    Claims follow their pods, so they have a while.
    """
    deadline = time.monotonic() + within
    while (after := inventory(api, leave_out=namespace)) - before:
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return sorted(after - before), after


def refused_events(events: Iterable[JSON]) -> list[JSON]:
    """Requests in an audit trail of kube-apiserver that a role or an admission policy did not allow."""
    return [event for event in events if _is_refusal(event.get("responseStatus", {}))]


def refused_lines(log: str) -> list[str]:
    """The same in the log of an embedded API server, for our components."""
    lines = (line for line in log.splitlines() if _TERMINATING not in line)
    return sorted({found[1] for line in lines if (found := _REFUSED.search(line))})


def _is_refusal(status: JSON) -> bool:
    message = status.get("message", "")
    # A policy whose expression fails answers 422.
    return (status.get("code") == 403 or "ValidatingAdmissionPolicy" in message) and _TERMINATING not in message


def _metadata(api: Api, path: str) -> list[JSON]:
    try:
        return [item["metadata"] for item in api.items(path)]
    except RefusedError as error:
        if error.code == 404:  # a custom kind that went while we looked
            return []
        raise


def _kept(resource: str, meta: JSON) -> bool:
    """Not the test's: Kubernetes keeps it, or it is shared by many tests and says so."""
    if "deletionTimestamp" in meta or any(owner.get("controller") for owner in meta.get("ownerReferences", ())):
        return True
    made_by_itself = {("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")}
    return (resource, meta["name"]) in made_by_itself or SHARED in meta.get("labels", {})


def _resources(api: Api) -> Iterator[tuple[str, str]]:
    """Every resource that can be listed and deleted, in its preferred version."""
    for root in ("/api", "/apis"):
        for group in api.get(root, accept=_DISCOVERY)["items"]:
            preferred = group["versions"][0]
            name = group["metadata"].get("name")
            path = f"{root}/{name}/{preferred['version']}" if name else f"{root}/{preferred['version']}"
            for entry in preferred.get("resources", ()):
                if {"list", "delete"} <= set(entry["verbs"]) and entry["resource"] not in _NOISE:
                    yield path, entry["resource"]
