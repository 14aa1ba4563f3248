"""Limit ranges: defaults for containers that ask for nothing in particular, and bounds for those that do."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from apportion.apis import quantity
from pocketkube.api import status
from pocketkube.api.admission import pod_resources
from pocketkube.api.request_attributes import Attributes
from pocketkube.api.storage.store import Bucket, Store

Obj = dict[str, Any]

_LIMIT_RANGES = Bucket("", "limitranges")
_NOTE = "kubernetes.io/limit-ranger"


class LimitRanges:
    """The plugin for pods that are created."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def fill(self, attrs: Attributes, pod: Obj) -> None:
        """Requests and limits that a container left out, and a note about them on the pod."""
        for stored in self._store.items(_LIMIT_RANGES, attrs.namespace):
            items = (stored.decode().get("spec") or {}).get("limits") or ()
            defaults = [item for item in items if item.get("type") == "Container"]
            notes = [note for item in defaults for note in _fill(pod["spec"], item)]
            if notes:
                annotations = pod["metadata"].setdefault("annotations", {})
                annotations[_NOTE] = f"LimitRanger plugin set: {'; '.join(notes)}"

    def check(self, attrs: Attributes, pod: Obj) -> None:
        for stored in self._store.items(_LIMIT_RANGES, attrs.namespace):
            problems: list[str] = []
            for item in (stored.decode().get("spec") or {}).get("limits") or ():
                if item.get("type") == "Container":
                    for container in pod_resources.containers(pod["spec"]):
                        problems += _broken(item, container.get("resources") or {})
                elif item.get("type") == "Pod":
                    whole = {part: pod_resources.of_pod(pod["spec"], part) for part in ("limits", "requests")}
                    problems += _broken(item, whole)
            if problems:
                listed = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
                raise status.forbidden(attrs.resource, attrs.name, listed)


def _fill(spec: Obj, item: Obj) -> Iterator[str]:
    for field, part in (("defaultRequest", "requests"), ("default", "limits")):
        defaults = item.get(field) or {}
        for kind, listed in (("container", "containers"), ("init container", "initContainers")):
            for container in spec.get(listed) or ():
                given = container.setdefault("resources", {}).setdefault(part, {})
                missing = sorted(name for name in defaults if name not in given)
                given |= {name: defaults[name] for name in missing}
                if missing:
                    yield f"{', '.join(missing)} {part[:-1]} for {kind} {container.get('name')}"
                if not given:
                    del container["resources"][part]


def _broken(item: Obj, resources: Obj) -> Iterator[str]:
    """Bounds that a container, or the sum of a pod's containers, does not keep."""
    kind, limits, requests = item["type"], resources.get("limits") or {}, resources.get("requests") or {}
    for name, bound in sorted((item.get("min") or {}).items()):
        head = f"minimum {name} usage per {kind} is {bound}"
        if name not in requests:
            yield f"{head}.  No request is specified"
        elif quantity.nanos(requests[name]) < quantity.nanos(bound):
            yield f"{head}, but request is {requests[name]}"
    for name, bound in sorted((item.get("max") or {}).items()):
        head = f"maximum {name} usage per {kind} is {bound}"
        if name not in limits:
            yield f"{head}.  No limit is specified"
        elif quantity.nanos(limits[name]) > quantity.nanos(bound):
            yield f"{head}, but limit is {limits[name]}"
    for name, bound in sorted((item.get("maxLimitRequestRatio") or {}).items()):
        head = f"{name} max limit to request ratio per {kind} is {bound}"
        if name not in limits or name not in requests or not quantity.nanos(requests[name]):
            yield f"{head}, but no request is specified or request is 0"
            continue
        ratio = Fraction(quantity.nanos(limits[name]), quantity.nanos(requests[name]))
        if ratio > quantity.parse(bound):
            yield f"{head}, but provided ratio is {float(ratio):f}"
