"""Tables of services, their endpoints and the network."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pocketkube.api.tables import cells
from pocketkube.api.tables.cells import Obj, Row

# `+` marks columns of `-o wide`; a type other than string stands behind a colon.
COLUMNS: dict[str, str] = {
    "core_v1.Endpoints": "Name,Endpoints,Age",
    "core_v1.Service": "Name,Type,Cluster-IP,External-IP,Port(s),Age,Selector+",
    "discovery_v1.EndpointSlice": "Name,AddressType,Ports,Endpoints,Age",
    "networking_v1.Ingress": "Name,Class,Hosts,Address,Ports,Age",
    "networking_v1.IngressClass": "Name,Controller,Parameters,Age",
    "networking_v1.NetworkPolicy": "Name,Pod-Selector,Age",
}


def _service(obj: Obj, now: datetime) -> list[Any]:
    spec = cells.part(obj, "spec")
    addresses = spec.get("clusterIPs") or [cells.NONE]
    ports = ",".join(_service_port(port) for port in spec.get("ports") or ()) or cells.NONE
    selector = cells.labels_text(spec.get("selector"))
    external = _external_address(spec, cells.part(obj, "status"))
    return [cells.name(obj), spec.get("type", ""), addresses[0], external, ports, cells.age(obj, now), selector]


def _service_port(port: Obj) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node}/{port.get('protocol')}"


def _external_address(spec: Obj, status: Obj) -> str:
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", ""))
    ingress = (status.get("loadBalancer") or {}).get("ingress") or []
    addresses = sorted({each.get("ip") or each.get("hostname") or "" for each in ingress} - {""})
    shown = ",".join([*addresses, *(spec.get("externalIPs") or ())])
    return shown or ("<pending>" if spec.get("type") == "LoadBalancer" else cells.NONE)


def _ingress(obj: Obj, now: datetime) -> list[Any]:
    spec, status = cells.part(obj, "spec"), cells.part(obj, "status")
    hosts = [rule["host"] for rule in spec.get("rules") or () if rule.get("host")]
    ingress = (status.get("loadBalancer") or {}).get("ingress") or []
    addresses = sorted({each.get("ip") or each.get("hostname") or "" for each in ingress} - {""})
    ports = "80, 443" if spec.get("tls") else "80"
    shown = cells.few(hosts) if hosts else "*"
    return [
        cells.name(obj),
        spec.get("ingressClassName") or cells.NONE,
        shown,
        ",".join(addresses),
        ports,
        cells.age(obj, now),
    ]


def _ingress_class(obj: Obj, now: datetime) -> list[Any]:
    spec = cells.part(obj, "spec")
    parameters = cells.NONE
    if given := spec.get("parameters"):
        group = f".{given['apiGroup']}" if given.get("apiGroup") else ""
        parameters = f"{given.get('kind')}{group}/{given.get('name')}"
    return [cells.name(obj), spec.get("controller", ""), parameters, cells.age(obj, now)]


def _network_policy(obj: Obj, now: datetime) -> list[Any]:
    return [cells.name(obj), cells.selector_text(cells.part(obj, "spec").get("podSelector")), cells.age(obj, now)]


def _endpoints(obj: Obj, now: datetime) -> list[Any]:
    found: list[str] = []
    for subset in obj.get("subsets") or ():
        addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
        for port in subset.get("ports") or [None]:
            found += [address if port is None else f"{address}:{port.get('port')}" for address in addresses]
    shown = cells.few(found) if found else ("" if obj.get("subsets") else cells.NONE)
    return [cells.name(obj), shown, cells.age(obj, now)]


def _endpoint_slice(obj: Obj, now: datetime) -> list[Any]:
    ports = [str(port.get("port") or port.get("name") or "*") for port in obj.get("ports") or ()]
    addresses = [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return [cells.name(obj), obj.get("addressType", ""), cells.few(ports), cells.few(addresses), cells.age(obj, now)]


ROWS: dict[str, Row] = {
    "core_v1.Endpoints": _endpoints,
    "core_v1.Service": _service,
    "discovery_v1.EndpointSlice": _endpoint_slice,
    "networking_v1.Ingress": _ingress,
    "networking_v1.IngressClass": _ingress_class,
    "networking_v1.NetworkPolicy": _network_policy,
}
