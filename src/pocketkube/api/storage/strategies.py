"""What a kind itself does to its objects when they are written: the part of a write that no user decides.

Main endpoints cannot write status and the status endpoint can write nothing else; pods start Pending with
their quality-of-service class; services get an address; jobs get their selector.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pocketkube.api.content import decoding
from pocketkube.api.registry import Resource

Obj = dict[str, Any]

# Kinds that keep the status they are created with: a kubelet registers its node in one call.
_STATUS_AT_CREATION = frozenset({("", "nodes")})
# Kinds whose status endpoint also takes labels and annotations.
_METADATA_WITH_STATUS = frozenset({("", "pods"), ("", "nodes"), ("", "namespaces"), ("", "services")})
_SYSTEM_UID_LABEL = "batch.kubernetes.io/controller-uid"
_SYSTEM_NAME_LABEL = "batch.kubernetes.io/job-name"


class Strategies:
    """Per-kind preparation; keeps the little state that some kinds need (service addresses)."""

    def __init__(
        self, used_addresses: Callable[[], Iterable[str]], accept_definition: Callable[[Obj, Obj | None], None]
    ) -> None:
        self._accept_definition = accept_definition
        self._used_addresses = used_addresses
        self._next_address = itertools.cycle(range(10, 65_000))
        self._next_port = itertools.cycle(range(30_000, 32_768))

    def before_create(self, resource: Resource, obj: Obj) -> None:
        key = (resource.group, resource.plural)
        if "status" in resource.subresources and key not in _STATUS_AT_CREATION:
            obj.pop("status", None)
        match key:
            case ("", "pods"):
                obj["status"] = {"phase": "Pending", "qosClass": qos_class(obj.get("spec") or {})}
                if (obj.get("spec") or {}).get("schedulingGates"):
                    obj["status"]["conditions"] = [_gated(obj["metadata"].get("creationTimestamp"))]
            case ("", "namespaces"):
                obj["status"] = {"phase": "Active"}
                finalizers = obj.setdefault("spec", {}).setdefault("finalizers", [])
                if "kubernetes" not in finalizers:
                    finalizers.append("kubernetes")
            case ("", "persistentvolumeclaims" | "persistentvolumes"):
                obj["status"] = {"phase": "Pending"}
            case ("", "services"):
                obj["status"] = {"loadBalancer": {}}
                self._give_addresses(obj.setdefault("spec", {}))
            case ("batch", "jobs"):
                _select_own_pods(obj)
        if not resource.custom and "status" in resource.subresources:
            obj.setdefault("status", decoding.empty(resource, "status"))

    def before_update(self, resource: Resource, subresource: str, obj: Obj, old: Obj) -> Obj:
        """The new object as far as this endpoint may write it."""
        match subresource:
            case "":
                self._main(resource, obj, old)
                return obj
            case "status" | "approval":
                return _status_only(resource, obj, old)
            case "finalize":
                return _spec_fields_only(obj, old, "finalizers")
            case "ephemeralcontainers":
                for container in (obj.get("spec") or {}).get("ephemeralContainers") or ():
                    container.pop("restartPolicy", None)
                return _spec_fields_only(obj, old, "ephemeralContainers")
            case "resize":
                return _resized(obj, old)
            case _:
                return obj

    def after_check(self, resource: Resource, obj: Obj, old: Obj | None) -> None:
        """What can only be done to an object that is known to be valid."""
        if (resource.group, resource.plural) == ("apiextensions.k8s.io", "customresourcedefinitions"):
            self._accept_definition(obj, old)

    def _main(self, resource: Resource, obj: Obj, old: Obj) -> None:
        key = (resource.group, resource.plural)
        if "status" in resource.subresources:
            _keep(obj, old, "status")
        if key == ("", "services"):
            self._keep_addresses(obj.setdefault("spec", {}), old.get("spec") or {})
        elif key == ("", "namespaces"):
            # finalizers of the spec go through their own endpoint
            obj.setdefault("spec", {})["finalizers"] = (old.get("spec") or {}).get("finalizers") or []

    def _give_addresses(self, spec: Obj) -> None:
        kind = spec.get("type", "ClusterIP")
        if kind == "ExternalName":
            return
        if not spec.get("clusterIP"):
            spec["clusterIP"] = self._free_address()
        spec["clusterIPs"] = [spec["clusterIP"]]
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        if kind in ("NodePort", "LoadBalancer"):
            for port in spec.get("ports") or []:
                if not port.get("nodePort"):
                    port["nodePort"] = next(self._next_port)

    def _keep_addresses(self, spec: Obj, old: Obj) -> None:
        if spec.get("type", "ClusterIP") == "ExternalName":
            return
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not spec.get(name) and old.get(name):
                spec[name] = old[name]
        ports = {port.get("port"): port.get("nodePort") for port in old.get("ports") or []}
        for port in spec.get("ports") or []:
            if not port.get("nodePort") and ports.get(port.get("port")) and spec.get("type") == old.get("type"):
                port["nodePort"] = ports[port.get("port")]
        self._give_addresses(spec)

    def _free_address(self) -> str:
        used = set(self._used_addresses())
        for number in self._next_address:
            address = f"10.96.{number // 256}.{number % 256}"
            if address not in used:
                return address
        raise AssertionError("a cycle does not end")


def _status_only(resource: Resource, obj: Obj, old: Obj) -> Obj:
    key = (resource.group, resource.plural)
    result = {**old}
    _keep(result, obj, "status")
    metadata = {**old["metadata"]}
    if key in _METADATA_WITH_STATUS:
        _keep(metadata, obj["metadata"], "labels")
    if not resource.custom:
        _keep(metadata, obj["metadata"], "annotations")
        _keep(metadata, obj["metadata"], "finalizers")
    _keep(metadata, obj["metadata"], "managedFields")
    result["metadata"] = metadata
    return result


def _spec_fields_only(obj: Obj, old: Obj, *names: str) -> Obj:
    spec = {**(old.get("spec") or {})}
    for name in names:
        _keep(spec, obj.get("spec") or {}, name)
    metadata = {**old["metadata"]}
    _keep(metadata, obj["metadata"], "managedFields")
    return {**old, "metadata": metadata, "spec": spec}


def _resized(obj: Obj, old: Obj) -> Obj:
    """The pod with the new amounts of its containers; lists that do not match are left to validation."""
    result = _spec_fields_only(obj, old, "containers", "initContainers")
    for field in ("containers", "initContainers"):
        new, before = result["spec"].get(field) or [], (old.get("spec") or {}).get(field) or []
        if [each.get("name") for each in new] != [each.get("name") for each in before]:
            continue
        if new:
            pairs = zip(before, new, strict=True)
            result["spec"][field] = [_amounts_of(dict(each), changed) for each, changed in pairs]
    return result


def _amounts_of(container: Obj, changed: Obj) -> Obj:
    for name in ("resources", "resizePolicy"):
        _keep(container, changed, name)
    return container


def _gated(now: str | None) -> Obj:
    return {
        "type": "PodScheduled",
        "status": "False",
        "lastTransitionTime": now,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }


def qos_class(spec: Mapping[str, Any]) -> str:
    """Guaranteed, Burstable or BestEffort, from CPU and memory of every container."""
    guaranteed, any_request = True, False
    for container in (*(spec.get("initContainers") or []), *(spec.get("containers") or [])):
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            limit, request = limits.get(name), requests.get(name, limits.get(name))
            any_request = any_request or not _zero(limit) or not _zero(request)
            if _zero(limit) or str(limit) != str(request):
                guaranteed = False
    if not any_request:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _zero(quantity: object) -> bool:
    return quantity is None or str(quantity).strip("0.") == ""


def _keep(target: Obj, source: Mapping[str, Any], name: str) -> None:
    if name in source:
        target[name] = source[name]
    else:
        target.pop(name, None)


def _select_own_pods(job: Obj) -> None:
    """A job selects its pods by its own uid unless the user took that over."""
    spec = job.get("spec")
    if not isinstance(spec, dict) or spec.get("manualSelector"):
        return
    uid, name = job["metadata"]["uid"], job["metadata"].get("name", "")
    labels = spec.setdefault("template", {}).setdefault("metadata", {}).setdefault("labels", {})
    labels |= {
        "controller-uid": uid,
        _SYSTEM_UID_LABEL: uid,
        "job-name": name,
        _SYSTEM_NAME_LABEL: name,
    }
    selector = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    selector[_SYSTEM_UID_LABEL] = uid
