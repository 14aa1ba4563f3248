"""What is free and who holds it, counted from the objects alone: nothing of the view or the core is used here."""

from __future__ import annotations

from typing import Any, NamedTuple

from apportion.apis import names
from tests.view.streams import CLAIMS, NODES, PODS, REPORTS, RESERVATIONS, VOLUME_CLAIMS, VOLUMES, Cluster

Json = dict[str, Any]
UNITS = 8  # of an A100


class Device(NamedTuple):
    """One GPU: its taken units as a mask, and the pod that the kubelet gave it to."""

    mig: bool
    healthy: bool
    units: int
    holder: str
    reserved: bool


class Count(NamedTuple):
    """One node: devices left by resource, its GPUs, and how many whole ones are left."""

    free: dict[str, int]
    gpus: dict[str, Device]
    whole_left: int


def count(cluster: Cluster) -> dict[str, Count]:
    return {name: _node(cluster, name, node) for name, node in cluster.all(NODES).items()}


def releasing_pods(cluster: Cluster) -> set[str]:
    """Bound pods that are being deleted and have not ended."""
    there = {node["metadata"]["name"] for node in cluster.all(NODES).values()}
    there |= {pod["spec"].get("nodeName", "") for pod in cluster.all(PODS).values()} - {""}
    return {
        pod["metadata"]["uid"]
        for node in there
        for pod in _pods_on(cluster, node)
        if "deletionTimestamp" in pod["metadata"]
    }


def claims(cluster: Cluster) -> dict[str, bool]:
    """All slices by the name of their claim, with whether they are being freed."""
    return {claim["metadata"]["name"]: "deletionTimestamp" in claim["metadata"] for claim in _all(cluster, CLAIMS)}


def storage(cluster: Cluster) -> tuple[dict[str, str], dict[str, str]]:
    """Volume claims with their volumes, and volumes with the claims that they are bound to."""
    claimed = {key: obj["spec"].get("volumeName", "") for key, obj in cluster.all(VOLUME_CLAIMS).items()}
    volumes = {}
    for key, obj in cluster.all(VOLUMES).items():
        bound = obj["spec"].get("claimRef")
        volumes[key] = f"{bound['namespace']}/{bound['name']}" if bound else ""
    return claimed, volumes


def pending(cluster: Cluster) -> dict[str, str]:
    """Pods of our schedulers without a node, with what the picture has to say about each."""
    found = {}
    for key, pod in cluster.all(PODS).items():
        spec = pod["spec"]
        if spec.get("nodeName") or ended(pod) or "deletionTimestamp" in pod["metadata"]:
            continue
        if spec.get("schedulerName") not in names.OUR_SCHEDULERS:
            continue
        gates = ", ".join(gate["name"] for gate in spec.get("schedulingGates", ()))
        told = next((each["message"] for each in pod["status"].get("conditions", ())), "not processed yet")
        found[key] = f"the pod has scheduling gates: {gates}" if gates else told
    return found


def ended(pod: Json) -> bool:
    status = pod.get("status", {})
    if status.get("phase") in {"Succeeded", "Failed"}:
        return True
    states = status.get("containerStatuses", ())
    sidecar = any("running" in each["state"] for each in status.get("initContainerStatuses", ()))
    deleting = "deletionTimestamp" in pod["metadata"]
    return deleting and not sidecar and bool(states) and all("terminated" in each["state"] for each in states)


def asked(pod: Json) -> dict[str, int]:
    limits: Json = pod["spec"]["containers"][0].get("resources", {}).get("limits", {})
    return {name: int(amount) for name, amount in limits.items() if "/" in name}


def _node(cluster: Cluster, name: str, node: Json) -> Count:
    pods = _pods_on(cluster, name)
    offered = node["status"]["allocatable"]
    free = {
        resource: int(amount) - sum(asked(pod).get(resource, 0) for pod in pods)
        for resource, amount in offered.items()
        if "/" in resource
    }
    report = cluster.all(REPORTS).get(f"{names.DAS_NAMESPACE}/{name}")
    listed = report["status"]["gpus"] if report else []
    gpus = {gpu["uuid"]: _device(cluster, gpu, pods) for gpu in listed}
    return Count(free, gpus, _whole_left(gpus, pods))


def _device(cluster: Cluster, gpu: Json, pods: list[Json]) -> Device:
    places = [(each["start"], each["size"]) for each in gpu.get("foreign", ())]
    for claim in _all(cluster, CLAIMS):
        if claim["spec"]["gpuUUID"] == gpu["uuid"]:
            place = claim["spec"]["migPlacement"]
            places.append((place["start"], place["size"]))
    last = UNITS if gpu["profiles"] else 0
    units = {unit for start, size in places for unit in range(start, start + size) if unit < last}
    here = {pod["metadata"]["uid"]: f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods}
    holder = next((here[each["podUID"]] for each in gpu.get("holders", ()) if each["podUID"] in here), "")
    mask = sum(1 << unit for unit in units)
    return Device(gpu["migEnabled"], gpu["healthy"], mask, holder, holder.startswith(f"{RESERVATIONS}/"))


def _whole_left(gpus: dict[str, Device], pods: list[Json]) -> int:
    """Pods that no report names have some of the others; reservation pods have one that is shared."""
    left = sum(1 for gpu in gpus.values() if not gpu.mig and gpu.healthy and not gpu.holder)
    named = {gpu.holder for gpu in gpus.values()}
    for pod in pods:
        meta = pod["metadata"]
        if f"{meta['namespace']}/{meta['name']}" not in named and meta["namespace"] != RESERVATIONS:
            left -= asked(pod).get(names.NVIDIA_GPU, 0)
    return max(0, left)


def _pods_on(cluster: Cluster, node: str) -> list[Json]:
    return [pod for pod in _all(cluster, PODS) if pod["spec"].get("nodeName") == node and not ended(pod)]


def _all(cluster: Cluster, kind: str) -> list[Json]:
    return list(cluster.all(kind).values())
