"""Endpoints and EndpointSlices: which addresses stand behind a Service."""

from __future__ import annotations

from typing import Any

from apportion.apis.kinds import ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES
from apportion.cluster import errors
from pocketkube.controllers import pod_facts
from pocketkube.controllers.controller import Control, Json, Key, Reconciler, deleting
from pocketkube.controllers.workloads.expectations import Expectations
from pocketkube.controllers.workloads.pod_templates import owner_reference
from pocketkube.informers import BY_NAMESPACE, BY_OWNER

SERVICE_LABEL = "kubernetes.io/service-name"
MANAGER_LABEL = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
SLICE_SIZE = 100


class EndpointsOfServices(Reconciler):
    name = "endpoints"
    component = "endpointslice-controller"

    def __init__(self, control: Control) -> None:
        super().__init__(control)
        self._expectations = Expectations(control.clock)

    def subscribe(self) -> None:
        self.follow(SERVICES)
        self.follow_owned(ENDPOINT_SLICES, "Service")
        self.informers.of(ENDPOINTS)

        def pod_changed(old: Json | None, new: Json | None) -> None:
            if old is not None and new is not None and _facts(old) == _facts(new):
                return
            for pod in (old, new):
                if pod is not None:
                    self._select(pod)

        self.informers.of(PODS).on_change(pod_changed)

    def _select(self, pod: Json) -> None:
        labels, namespace = pod_facts.labels(pod), pod["metadata"]["namespace"]
        for service in self.informers.of(SERVICES).indexed(BY_NAMESPACE, namespace):
            selector = service["spec"].get("selector")
            if selector and selector.items() <= labels.items():
                self.queue.add((namespace, service["metadata"]["name"]))

    async def reconcile(self, key: Key) -> float | None:
        service = self.informers.of(SERVICES).get(key[1], key[0])
        if service is None:
            await self._remove_endpoints(key)
            return None
        selector = service["spec"].get("selector")
        if not selector or deleting(service):
            return None
        waiting = self._expectations.wait(key)
        if waiting is not None:
            return waiting
        chosen = [
            pod
            for pod in self.informers.of(PODS).indexed(BY_NAMESPACE, key[0])
            if selector.items() <= pod_facts.labels(pod).items() and _has_address(pod)
        ]
        chosen.sort(key=lambda pod: pod["metadata"]["name"])
        await self._write_slices(key, service, chosen)
        await self._write_endpoints(key, service, chosen)
        return None

    async def _write_slices(self, key: Key, service: Json, chosen: list[Json]) -> None:
        """Pods whose ports have the same numbers share slices."""
        there = self.informers.of(ENDPOINT_SLICES).indexed(BY_OWNER, service["metadata"]["uid"])
        publish = bool(service["spec"].get("publishNotReadyAddresses"))
        wanted: list[tuple[list[Json], list[Json]]] = []
        for ports, members in _by_ports(service, chosen):
            entries = [_endpoint(pod, publish=publish) for pod in members]
            chunks = [entries[at : at + SLICE_SIZE] for at in range(0, len(entries), SLICE_SIZE)] or [[]]
            wanted += [(ports, chunk) for chunk in chunks]
        for position, (ports, entries) in enumerate(wanted):
            if position < len(there):
                await self._update_slice(key, there[position], ports, entries)
            else:
                await self._create_slice(key, service, ports, entries)
        for surplus in there[len(wanted) :]:
            meta = surplus["metadata"]
            await self.client.delete(ENDPOINT_SLICES, meta["name"], namespace=meta["namespace"])
            self._expectations.removed(key, self.informers.of(ENDPOINT_SLICES), surplus)

    async def _create_slice(self, key: Key, service: Json, ports: list[Json], entries: list[Json]) -> None:
        name = service["metadata"]["name"]
        labels = {**pod_facts.labels(service), SERVICE_LABEL: name, MANAGER_LABEL: MANAGER}
        meta = {
            "generateName": f"{name}-",
            "namespace": service["metadata"]["namespace"],
            "labels": labels,
            "ownerReferences": [owner_reference(SERVICES, service)],
        }
        body = {"metadata": meta, "addressType": "IPv4", "endpoints": entries, "ports": ports}
        made = await self.client.create(ENDPOINT_SLICES, body)
        self._expectations.created(key, self.informers.of(ENDPOINT_SLICES), made)

    async def _update_slice(self, key: Key, before: Json, ports: list[Json], entries: list[Json]) -> None:
        if before.get("endpoints", []) == entries and (before.get("ports") or []) == ports:
            return
        meta = before["metadata"]
        patch = {"endpoints": entries, "ports": ports}
        written = await self.client.patch(ENDPOINT_SLICES, meta["name"], patch, namespace=meta["namespace"])
        self._expectations.written(key, self.informers.of(ENDPOINT_SLICES), written)

    async def _write_endpoints(self, key: Key, service: Json, chosen: list[Json]) -> None:
        subsets = _subsets(service, chosen)
        before = self.informers.of(ENDPOINTS).get(key[1], key[0])
        if before is not None and (before.get("subsets") or []) == subsets:
            return
        if before is not None:
            written = await self.client.patch(ENDPOINTS, key[1], {"subsets": subsets}, namespace=key[0])
            self._expectations.written(key, self.informers.of(ENDPOINTS), written)
            return
        labels = {**pod_facts.labels(service), "endpoints.kubernetes.io/managed-by": "endpoint-controller"}
        body = {"metadata": {"name": key[1], "namespace": key[0], "labels": labels}, "subsets": subsets}
        made = await self.client.create(ENDPOINTS, body)
        self._expectations.created(key, self.informers.of(ENDPOINTS), made)

    async def _remove_endpoints(self, key: Key) -> None:
        if self.informers.of(ENDPOINTS).get(key[1], key[0]) is None:
            return
        try:
            await self.client.delete(ENDPOINTS, key[1], namespace=key[0])
        except errors.NotFound:
            return


def _facts(pod: Json) -> tuple[Any, ...]:
    status = pod.get("status") or {}
    return pod_facts.labels(pod), status.get("podIP"), pod_facts.ready(pod), pod_facts.phase(pod), deleting(pod)


def _has_address(pod: Json) -> bool:
    return bool((pod.get("status") or {}).get("podIP")) and not pod_facts.terminal(pod)


def _by_ports(service: Json, chosen: list[Json]) -> list[tuple[list[Json], list[Json]]]:
    groups: dict[tuple[Any, ...], tuple[list[Json], list[Json]]] = {}
    for pod in chosen:
        ports = _ports(service, pod)
        identity = tuple((port["name"], port["port"], port["protocol"]) for port in ports)
        groups.setdefault(identity, (ports, []))[1].append(pod)
    return list(groups.values()) or [([], [])]


def _ports(service: Json, pod: Json) -> list[Json]:
    """The service's ports as numbers that this pod listens on."""
    found: list[Json] = []
    for port in service["spec"].get("ports") or ():
        number = _number(port.get("targetPort", port["port"]), port.get("protocol", "TCP"), pod)
        if number is not None:
            entry = {"name": port.get("name", ""), "port": number, "protocol": port.get("protocol", "TCP")}
            if "appProtocol" in port:
                entry["appProtocol"] = port["appProtocol"]
            found.append(entry)
    return found


def _number(target: str | int, protocol: str, pod: Json) -> int | None:
    if isinstance(target, int):
        return target
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or ():
            if port.get("name") == target and port.get("protocol", "TCP") == protocol:
                return int(port["containerPort"])
    return None


def _target(pod: Json) -> Json:
    meta = pod["metadata"]
    return {"kind": "Pod", "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}


def _endpoint(pod: Json, *, publish: bool) -> Json:
    ready = pod_facts.ready(pod)
    return {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {
            "ready": publish or (ready and not deleting(pod)),
            "serving": ready,
            "terminating": deleting(pod),
        },
        "nodeName": pod["spec"].get("nodeName", ""),
        "targetRef": _target(pod),
    }


def _subsets(service: Json, chosen: list[Json]) -> list[Json]:
    subsets: list[Json] = []
    publish = bool(service["spec"].get("publishNotReadyAddresses"))
    for ports, members in _by_ports(service, [pod for pod in chosen if not deleting(pod)]):
        if not members:
            continue
        addresses: dict[str, list[Json]] = {"addresses": [], "notReadyAddresses": []}
        for pod in members:
            entry = {
                "ip": pod["status"]["podIP"],
                "nodeName": pod["spec"].get("nodeName", ""),
                "targetRef": _target(pod),
            }
            addresses["addresses" if publish or pod_facts.ready(pod) else "notReadyAddresses"].append(entry)
        named = [{name: value for name, value in port.items() if value != ""} for port in ports]
        subsets.append({name: value for name, value in addresses.items() if value} | {"ports": named})
    return subsets
