"""Scale: the replica count of any workload in one shape, for `kubectl scale` and autoscalers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pocketkube.api import status
from pocketkube.api.registry import Resource
from pocketkube.api.status import Cause

Obj = dict[str, Any]


class _ScaleKind:
    group, plural, kind = "autoscaling", "scales", "Scale"


_SCALE = _ScaleKind()


def of(resource: Resource, obj: Obj) -> Obj:
    """The Scale of an object."""
    meta = obj["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    paths = resource.scale
    desired = _at(obj, paths.spec_replicas if paths else ".spec.replicas")
    current = _at(obj, paths.status_replicas if paths else ".status.replicas")
    selector = _selector(resource, obj)
    scale: Obj = {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: meta[name] for name in names if name in meta},
        "spec": {"replicas": desired} if desired else {},
        "status": {"replicas": current or 0},
    }
    if selector:
        scale["status"]["selector"] = selector
    return scale


def change(resource: Resource, make: Callable[[Obj], Obj]) -> Callable[[Obj], Obj]:
    """A change of a Scale as a change of the object behind it."""

    def apply(obj: Obj) -> Obj:
        scale = make(of(resource, obj))
        _check(resource, obj, scale)
        replicas = (scale.get("spec") or {}).get("replicas") or 0
        _set(obj, resource.scale.spec_replicas if resource.scale else ".spec.replicas", replicas)
        revision = (scale.get("metadata") or {}).get("resourceVersion")
        if revision:
            obj["metadata"]["resourceVersion"] = revision
        return obj

    return apply


class Admitted:
    """How admission sees a change of a Scale: the Scale, not the object behind it."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource

    def shown(self, obj: Obj) -> Obj:
        return of(self._resource, obj)

    def taken(self, obj: Obj, shown: Obj) -> Obj:
        """The object with what admission has made of its Scale."""
        return change(self._resource, lambda _scale: shown)(obj)


def _check(resource: Resource, obj: Obj, scale: Obj) -> None:
    name = (scale.get("metadata") or {}).get("name")
    if name and name != obj["metadata"]["name"]:
        raise status.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({obj['metadata']['name']})"
        )
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    if replicas < 0 and not resource.custom:
        problem = Cause("spec.replicas", f"Invalid value: {replicas}: must be greater than or equal to 0")
        raise status.invalid(_SCALE, str(obj["metadata"]["name"]), [problem])


def _selector(resource: Resource, obj: Obj) -> str:
    if resource.scale is not None:
        found = _at(obj, resource.scale.label_selector) if resource.scale.label_selector else ""
        return str(found) if isinstance(found, str) else ""
    selector: Obj = (obj.get("spec") or {}).get("selector") or {}
    if (resource.group, resource.plural) == ("", "replicationcontrollers"):
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    parts: list[str] = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    parts += [_expression(expression) for expression in selector.get("matchExpressions") or []]
    return ",".join(sorted(parts))


def _expression(expression: Mapping[str, Any]) -> str:
    key, values = expression.get("key", ""), ",".join(sorted(expression.get("values") or []))
    forms: dict[str, str] = {
        "In": f"{key} in ({values})",
        "NotIn": f"{key} notin ({values})",
        "Exists": key,
        "DoesNotExist": f"!{key}",
    }
    return forms.get(str(expression.get("operator")), "")


def _at(obj: Any, path: str) -> Any:
    for part in path.strip(".").split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _set(obj: Obj, path: str, value: Any) -> None:
    *parents, last = path.strip(".").split(".")
    for part in parents:
        obj = obj.setdefault(part, {})
    obj[last] = value
