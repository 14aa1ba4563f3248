"""Resource quotas: how much a namespace may ask for, counted from what is there when something new comes."""

from __future__ import annotations

from typing import Any

from apportion.apis import quantity
from apportion.embedded.api import amounts, status
from apportion.embedded.api.attributes import Attributes
from apportion.embedded.api.conversion import bucket_of
from apportion.embedded.api.registry import Resource
from apportion.embedded.api.store import Bucket, Store

Obj = dict[str, Any]

_QUOTAS = Bucket("", "resourcequotas")
_PODS = Bucket("", "pods")
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_OVER = ("Succeeded", "Failed")


class Quotas:
    """The plugin for everything that is created in a namespace."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def check(self, attrs: Attributes, obj: Obj) -> None:
        if not attrs.resource.namespaced or attrs.operation != "CREATE" or attrs.subresource:
            return
        for stored in self._store.items(_QUOTAS, attrs.namespace):
            spec = stored.decode().get("spec") or {}
            if _concerns(spec, attrs.resource, obj):
                self._check(attrs, obj, stored.key.name, spec)

    def used(self, namespace: str, spec: Obj, resource: Resource) -> Obj:
        """What the objects of one resource use of a quota."""
        total: dict[str, int] = {}
        styles: Obj = {}
        for stored in self._store.items(bucket_of(resource), namespace):
            obj = stored.decode()
            if _concerns(spec, resource, obj) and (obj.get("status") or {}).get("phase") not in _OVER:
                for name, amount in _usage(resource, obj).items():
                    total[name] = total.get(name, 0) + quantity.nanos(amount)
                    styles[name] = amount
        return {name: amounts.text(amount, str(styles[name])) for name, amount in total.items()}

    def _check(self, attrs: Attributes, obj: Obj, name: str, spec: Obj) -> None:
        hard = spec.get("hard") or {}
        if bucket_of(attrs.resource) == _PODS and (missing := _unspecified(hard, obj)):
            why = f"failed quota: {name}: must specify {'; '.join(missing)}"
            raise status.forbidden(attrs.resource, attrs.name, why)
        wanted = {key: amount for key, amount in _usage(attrs.resource, obj).items() if key in hard}
        if not wanted:
            return
        used = self.used(attrs.namespace, spec, attrs.resource)
        over = sorted(
            key
            for key, amount in wanted.items()
            if quantity.nanos(amount) + quantity.nanos(used.get(key, "0")) > quantity.nanos(hard[key])
        )
        if over:
            asked, before, limit = (
                ",".join(f"{key}={values.get(key, '0')}" for key in over) for values in (wanted, used, hard)
            )
            why = f"exceeded quota: {name}, requested: {asked}, used: {before}, limited: {limit}"
            raise status.forbidden(attrs.resource, attrs.name, why)


def _usage(resource: Resource, obj: Obj) -> Obj:
    """What one object takes, under every name that a quota can give it."""
    usage: Obj = {f"count/{resource.qualified}": "1"}
    if not resource.group:
        usage[resource.plural] = "1"
    if bucket_of(resource) == _PODS:
        for part in ("requests", "limits"):
            for name, amount in amounts.of_pod(obj.get("spec") or {}, part).items():
                usage[f"{part}.{name}"] = amount
                if part == "requests" and name in _COMPUTE:
                    usage[name] = amount
    if resource.model == "core_v1.PersistentVolumeClaim":
        requests = ((obj.get("spec") or {}).get("resources") or {}).get("requests") or {}
        usage["requests.storage"] = requests.get("storage", "0")
    return usage


def _unspecified(hard: Obj, pod: Obj) -> list[str]:
    """Compute resources that a quota counts and a container says nothing about."""
    missing = []
    for key in sorted(hard):
        part, dot, name = key.partition(".")
        if not dot and key in _COMPUTE:
            part, name = "requests", key
        if part not in ("requests", "limits") or name not in _COMPUTE:
            continue
        silent = [
            container.get("name", "")
            for container in amounts.containers(pod.get("spec") or {})
            if name not in ((container.get("resources") or {}).get(part) or {})
        ]
        if silent:
            missing.append(f"{key} for: {','.join(silent)}")
    return missing


def _concerns(spec: Obj, resource: Resource, obj: Obj) -> bool:
    """Whether a quota's scopes take an object in; only pods have any."""
    selected = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    scopes: list[tuple[str, str, list[str]]] = [
        *((name, "Exists", []) for name in spec.get("scopes") or ()),
        *((each.get("scopeName", ""), each.get("operator", ""), each.get("values") or []) for each in selected),
    ]
    if not scopes:
        return True
    if bucket_of(resource) != _PODS:
        return False
    return all(_in_scope(obj.get("spec") or {}, *scope) for scope in scopes)


def _in_scope(spec: Obj, name: str, operator: str, values: list[str]) -> bool:
    best_effort = not any(amounts.of_pod(spec, part) for part in ("requests", "limits"))
    given = spec.get("priorityClassName") or ""
    match name:
        case "Terminating" | "NotTerminating":
            return ("activeDeadlineSeconds" in spec) == (name == "Terminating")
        case "BestEffort" | "NotBestEffort":
            return best_effort == (name == "BestEffort")
        case "PriorityClass":
            kept = {"In": given in values, "NotIn": given not in values, "Exists": bool(given)}
            return kept.get(operator, not given)
        case _:
            return False
