"""What is free and who holds it, counted from the objects alone: nothing of the view or the core is used here."""

from __future__ import annotations

from typing import Any, NamedTuple

from apportion.apis import names
from tests.view.objects import CLAIMS, NODES, PODS, REPORTS, VOLUME_CLAIMS, VOLUMES, Cluster
from tests.view.sharing import shares_by_hand
from tests.view.streams import RESERVATIONS

Json = dict[str, Any]
UNITS = 8  # of an A100


class Device(NamedTuple):
    """One GPU: its taken units as a mask, the pods that are known to hold it, whole or for others, and its shares."""

    mig: bool
    healthy: bool
    units: int
    whole: str
    reservation: str
    memory: int
    shares: dict[str, int]
    takes_shares: bool

    @property
    def holder(self) -> str:
        return self.whole or self.reservation

    @property
    def free_mib(self) -> int:
        """For new shares, if nobody has the GPU whole."""
        unknown = 0 in self.shares.values() or (self.reservation and not self.shares)
        if self.mig or not self.healthy or not self.takes_shares or unknown:
            return 0
        return max(0, self.memory - sum(self.shares.values()))


class Count(NamedTuple):
    """One node: devices left by resource, its GPUs, and how many whole ones are left."""

    free: dict[str, int]
    gpus: dict[str, Device]
    whole_left: int


class Shared(NamedTuple):
    """The shares of all pods, each with its node, and the GPUs that take no more."""

    shares: dict[str, tuple[str, list[shares_by_hand.Entry]]]
    closed: set[str]


def count(cluster: Cluster) -> dict[str, Count]:
    shared = Shared(shares_by_hand.all_shares(cluster, ended), shares_by_hand.closed(cluster, ended))
    return {name: _node(cluster, name, node, shared) for name, node in cluster.all(NODES).items()}


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
        request = shares_by_hand.requested(cluster, pod)
        if request is not None:
            found[key] = f"the pod waits for the binder, for node {request['spec']['selectedNode']}"
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


def _node(cluster: Cluster, name: str, node: Json, shared: Shared) -> Count:
    pods = _pods_on(cluster, name)
    offered = node["status"]["allocatable"]
    free = {
        resource: int(amount) - sum(asked(pod).get(resource, 0) for pod in pods)
        for resource, amount in offered.items()
        if "/" in resource
    }
    held = _held(cluster, name, pods)
    gpus = _devices(cluster, name, pods, held, shared)
    silent = sum(_is_reservation(pod) and not held.get(pod["metadata"]["uid"]) for pod in pods)
    without = sum(bool(gpu.shares) and not gpu.reservation for gpu in gpus.values())
    unreserved = max(0, without - silent)
    free["pods"] = int(offered["pods"]) - len(pods) - unreserved
    if names.NVIDIA_GPU in free:
        free[names.NVIDIA_GPU] -= unreserved
    claimed = {claim["spec"]["gpuUUID"] for claim in _all(cluster, CLAIMS) if claim["spec"]["nodename"] == name}
    unclaimed = {uuid: gpu for uuid, gpu in gpus.items() if uuid not in claimed}
    return Count(free, gpus, _whole_left(unclaimed, pods, held))


def _held(cluster: Cluster, node: str, pods: list[Json]) -> dict[str, list[str]]:
    """Pods with the GPUs that they are known to have; what the agent reports counts first."""
    found: dict[str, list[str]] = {}
    for gpu in _reported(cluster, node).values():
        for each in gpu.get("holders", ()):
            found.setdefault(each["podUID"], []).append(gpu["uuid"])
    for pod in filter(_is_reservation, pods):
        found.setdefault(pod["metadata"]["uid"], shares_by_hand.reserved_by_annotation(cluster, pod, ended))
    here = shares_by_hand.devices(cluster, node)
    uids = {pod["metadata"]["uid"] for pod in pods}
    return {uid: [uuid for uuid in uuids if uuid in here] for uid, uuids in found.items() if uid in uids}


def _devices(
    cluster: Cluster, node: str, pods: list[Json], held: dict[str, list[str]], shared: Shared
) -> dict[str, Device]:
    reported = _reported(cluster, node)
    by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
    found = {}
    for uuid, memory in shares_by_hand.devices(cluster, node).items():
        gpu = reported.get(uuid, {"migEnabled": False, "healthy": True, "profiles": []})
        holders = [by_uid[uid] for uid in sorted(held) if uuid in held[uid]]
        whole, reservation = (
            next((_name(pod) for pod in reversed(holders) if _is_reservation(pod) == kind), "")
            for kind in (False, True)
        )
        shares = _shares(shared, node, uuid)
        units = _units(cluster, uuid, gpu)
        mig, healthy = gpu["migEnabled"], gpu["healthy"]
        found[uuid] = Device(mig, healthy, units, whole, reservation, memory.mib, shares, uuid not in shared.closed)
    return found


def _shares(shared: Shared, node: str, uuid: str) -> dict[str, int]:
    return {
        f"{uid}/{number}": entry.mib
        for uid, (home, entries) in shared.shares.items()
        for number, entry in enumerate(entries)
        if home == node and entry.device == uuid
    }


def _units(cluster: Cluster, uuid: str, gpu: Json) -> int:
    places = [(each["start"], each["size"]) for each in gpu.get("foreign", ())]
    for claim in _all(cluster, CLAIMS):
        if claim["spec"]["gpuUUID"] == uuid:
            place = claim["spec"]["migPlacement"]
            places.append((place["start"], place["size"]))
    last = UNITS if gpu["profiles"] else 0
    units = {unit for start, size in places for unit in range(start, start + size) if unit < last}
    return sum(1 << unit for unit in units)


def _whole_left(gpus: dict[str, Device], pods: list[Json], held: dict[str, list[str]]) -> int:
    """Pods that no report names have some of the others; reservation pods have one that is shared."""
    left = sum(1 for gpu in gpus.values() if not gpu.mig and gpu.healthy and not gpu.holder and not gpu.shares)
    for pod in pods:
        if not held.get(pod["metadata"]["uid"]) and not _is_reservation(pod):
            left -= asked(pod).get(names.NVIDIA_GPU, 0)
    return max(0, left)


def _reported(cluster: Cluster, node: str) -> dict[str, Json]:
    report = cluster.all(REPORTS).get(f"{names.DAS_NAMESPACE}/{node}")
    return {gpu["uuid"]: gpu for gpu in (report["status"]["gpus"] if report else [])}


def _is_reservation(pod: Json) -> bool:
    return bool(pod["metadata"]["namespace"] == RESERVATIONS and asked(pod).get(names.NVIDIA_GPU))


def _name(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _pods_on(cluster: Cluster, node: str) -> list[Json]:
    """Bound pods, and those that are about to be bound."""
    return [pod for pod in _all(cluster, PODS) if _home(cluster, pod) == node and not ended(pod)]


def _home(cluster: Cluster, pod: Json) -> str:
    request = shares_by_hand.requested(cluster, pod)
    return str(request["spec"]["selectedNode"] if request is not None else pod["spec"].get("nodeName", ""))


def _all(cluster: Cluster, kind: str) -> list[Json]:
    return list(cluster.all(kind).values())
