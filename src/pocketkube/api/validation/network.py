"""Rules for services and endpoints."""

from __future__ import annotations

from typing import Any

from pocketkube.api.validation import name_rules, problems
from pocketkube.api.validation.problems import Problems
from pocketkube.api.validation.selectors import labels

Obj = dict[str, Any]

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")


def service(found: Problems, new: Obj, old: Obj | None) -> None:
    spec = new.get("spec") or {}
    kind, ports = spec.get("type") or "", spec.get("ports") or []
    headless = spec.get("clusterIP") == "None"
    if not ports and not headless and kind != "ExternalName":
        found.required("spec.ports")
    if kind == "ExternalName":
        name = spec.get("externalName") or ""
        if not name:
            found.required("spec.externalName")
        else:
            found.all_of("spec.externalName", name, name_rules.dns_subdomain(name.removesuffix(".")))
    _ports(found, ports, kind)
    labels(found, "spec.selector", spec.get("selector") or {})
    found.one_of("spec.sessionAffinity", spec.get("sessionAffinity"), ("ClientIP", "None"))
    for index, address in enumerate(spec.get("clusterIPs") or ()):
        if address != "None":
            found.all_of(f"spec.clusterIPs[{index}]", address, name_rules.ip_address(address))
    found.one_of("spec.type", kind, _TYPES)
    before = (old or {}).get("spec") or {}
    fixed = before.get("clusterIP") and before.get("type") != "ExternalName" and kind != "ExternalName"
    if fixed and spec.get("clusterIP") != before["clusterIP"]:
        found.invalid("spec.clusterIPs[0]", spec.get("clusterIPs") or [], "may not change once set")


def _ports(found: Problems, ports: list[Obj], kind: str) -> None:
    names: set[str] = set()
    taken: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        here, name, number = f"spec.ports[{index}]", port.get("name") or "", port.get("port", 0)
        if not name and len(ports) > 1:
            found.required(f"{here}.name")
        elif name:
            found.all_of(f"{here}.name", name, name_rules.dns_label(name))
            if name in names:
                found.duplicate(f"{here}.name", name)
        names.add(name)
        found.in_range(f"{here}.port", number, 1, problems.HIGHEST_PORT)
        found.one_of(f"{here}.protocol", port.get("protocol"), _PROTOCOLS)
        found.port(f"{here}.targetPort", port.get("targetPort", number))
        if port.get("nodePort") and kind in ("ClusterIP", ""):
            found.forbidden(f"{here}.nodePort", "may not be used when `type` is 'ClusterIP'")
        key = (port.get("protocol"), number)
        if key in taken:
            found.duplicate(here, {"Name": "", "Protocol": key[0], "Port": number})
        taken.add(key)


def endpoint_slice(found: Problems, new: Obj, old: Obj | None) -> None:
    kind = new.get("addressType") or ""
    found.one_of("addressType", kind, _ADDRESS_TYPES)
    for index, endpoint in enumerate(new.get("endpoints") or ()):
        addresses = endpoint.get("addresses") or []
        if not addresses:
            found.required(f"endpoints[{index}].addresses", "must contain at least 1 address")
        if kind in ("IPv4", "IPv6"):
            for position, address in enumerate(addresses):
                found.all_of(f"endpoints[{index}].addresses[{position}]", address, name_rules.ip_address(address))
    for index, port in enumerate(new.get("ports") or ()):
        found.one_of(f"ports[{index}].protocol", port.get("protocol"), _PROTOCOLS)
    if old is not None:
        found.immutable("addressType", kind, old.get("addressType"))
