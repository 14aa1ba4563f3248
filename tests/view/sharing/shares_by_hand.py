"""Who has how much of which shared GPU, counted from the objects alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from apportion.apis import names
from tests.view.objects import BIND_REQUESTS, CONFIGS, NODES, PODS, REPORTS, Cluster
from tests.view.sharing.share_streams import RESERVATIONS

Json = dict[str, Any]


class Memory(NamedTuple):
    """What is known of a GPU's memory: MiB, and whether that is measured."""

    mib: int
    measured: bool = True


class Entry(NamedTuple):
    """A share of a pod: 0 MiB if that cannot be said. `written` if the bound pod itself says it."""

    group: str
    device: str
    mib: int
    uuid: str = ""
    written: bool = False


def devices(cluster: Cluster, node: str) -> dict[str, Memory]:
    """The GPUs of a node: as reported, or slots."""
    report = cluster.all(REPORTS).get(f"{names.DAS_NAMESPACE}/{node}")
    listed = report["status"]["gpus"] if report else []
    if listed:
        return {gpu["uuid"]: Memory(gpu["memoryMiB"]) for gpu in listed}
    made = cluster.all(NODES).get(node)
    if made is None or not sharing(cluster):
        return {}
    text = made["metadata"]["labels"].get(names.GPU_MEMORY_LABEL, "")
    memory = Memory(int(text)) if text.isdigit() else Memory(1000, measured=False)
    count = int(made["status"]["capacity"].get(names.NVIDIA_GPU, 0))
    return {f"{node}/{number}": memory for number in range(count)}


def sharing(cluster: Cluster) -> bool:
    config = cluster.all(CONFIGS).get(names.KAI_CONFIG_OBJECT)
    return bool(config and config["spec"]["admission"]["gpuSharing"])


def all_shares(cluster: Cluster, ended: Any) -> dict[str, tuple[str, list[Entry]]]:
    """By uid of the pod: its node, and what it has there or will have."""
    found = {}
    for pod in cluster.all(PODS).values():
        if ended(pod):
            continue
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        if node:
            entries = _of_bound(cluster, pod, node, ended)
        else:
            request = requested(cluster, pod)
            if request is None:
                continue
            node = request["spec"]["selectedNode"]
            entries = _of_request(cluster, pod, request["spec"], ended)
        if entries:
            found[uid] = (node, entries)
    return found


def requested(cluster: Cluster, pod: Json) -> Json | None:
    """The request that a pod without a node waits for."""
    if pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"] or not readable(pod):
        return None
    uid = pod["metadata"]["uid"]
    for request in cluster.all(BIND_REQUESTS).values():
        if request["spec"]["podUID"] == uid and request["status"].get("phase") != "Failed":
            return dict(request)
    return None


def readable(pod: Json) -> bool:
    """It asks for a share that can be read."""
    annotations = pod["metadata"].get("annotations", {})
    ours = pod["spec"].get("schedulerName") == names.KAI_SCHEDULER
    fraction = annotations.get(names.GPU_FRACTION, "")
    policy = annotations.get(names.POLICY, "pack")
    return ours and policy == "pack" and (fraction.startswith("0.") or names.GPU_SHARE_MEMORY in annotations)


def closed(cluster: Cluster, ended: Any) -> set[str]:
    """GPUs that bound pods share although the reservations of their groups have others."""
    found = set()
    for _, entries in all_shares(cluster, ended).values():
        for entry in entries:
            has = {_annotations(pod).get(names.RESERVED_GPU, "") for pod in _reservations(cluster, entry.group, ended)}
            has.discard("")
            known = entry.uuid or "/" not in entry.device
            if entry.written and known and has and not has & {entry.uuid, entry.device}:
                found.add(entry.device)
    return found


def reserved_by_annotation(cluster: Cluster, pod: Json, ended: Any) -> list[str]:
    """The GPU of a reservation pod, by its names."""
    annotations = _annotations(pod)
    planned = annotations.get(names.PLANNED_GPU, "")
    group = str(pod["metadata"].get("labels", {}).get(names.GPU_GROUP_LABEL, ""))
    if not group:
        return []
    slot = _elsewhere(cluster, pod["spec"]["nodeName"], ended).get(group, planned) if "/" in planned else ""
    return [each for each in (annotations.get(names.RESERVED_GPU, ""), slot) if each]


def _elsewhere(cluster: Cluster, node: str, ended: Any) -> dict[str, str]:
    """Groups that are not on the device that was planned for them, because somebody else has it."""
    return _places(cluster, node, ended)[1]


def _places(cluster: Cluster, node: str, ended: Any) -> tuple[dict[str, str], dict[str, str]]:
    """The devices of groups, and of those that are not where they were planned."""
    here = devices(cluster, node)
    known: dict[str, list[tuple[bool, int, str, str]]] = {}
    has: dict[str, str] = {}  # GPUs with their groups or pods, as the agent reports
    report = cluster.all(REPORTS).get(f"{names.DAS_NAMESPACE}/{node}")
    listed = report["status"]["gpus"] if report else []
    for pod in cluster.all(PODS).values():
        if not ended(pod):
            _hear(known, _said_by(cluster, pod, node))
    first = {group: min(each) for group, each in known.items()}
    for gpu in listed:
        for holder in gpu.get("holders", ()):
            group = _group_of_reservation(cluster, holder["podUID"], node, ended)
            has[gpu["uuid"]] = group or holder["podUID"]
    sure = {uuid for each in known.values() for *_, uuid in each if uuid in here}
    homes = {group: uuid if uuid in here else device for group, (*_, device, uuid) in first.items()}
    odd = {gpu["uuid"] for gpu in listed if gpu["migEnabled"] or not gpu["healthy"]}
    free = [each for each in sorted(here) if each not in {*has, *sure, *homes.values(), *odd}]
    keeps = {uuid: first[group][-1] or group if group in first else group for uuid, group in has.items()}
    keeps |= {uuid: uuid for uuid in sure}
    moved: dict[tuple[str, str], str] = {}
    found = {}
    for group in [*(each for each in sorted(first) if first[each][-1]), *sorted(first)]:
        who = first[group][-1] or group
        if homes[group] in here and keeps.setdefault(homes[group], who) != who:
            if (homes[group], who) not in moved and free:
                moved[homes[group], who] = free.pop(0)
            if (homes[group], who) in moved:
                found[group] = moved[homes[group], who]
    return {group: home for group, home in homes.items() if home in here} | found, found


def _said_by(cluster: Cluster, pod: Json, node: str) -> tuple[int, list[tuple[str, str, str]]]:
    """Groups with their planned devices and, if known, UUIDs; the lower number counts first."""
    bound, annotations = pod["spec"].get("nodeName", ""), _annotations(pod)
    request = requested(cluster, pod)
    if bound == node and pod["metadata"]["namespace"] == RESERVATIONS:
        group = pod["metadata"].get("labels", {}).get(names.GPU_GROUP_LABEL)
        said = (annotations.get(names.PLANNED_GPU, ""), annotations.get(names.RESERVED_GPU, ""))
        return 1, [(group, *said)] if group else []
    if bound == node:
        written = json.loads(annotations.get(names.SHARED_GPUS, "[]"))
        return 0, [(each["group"], each["device"], each.get("uuid") or _real(each["device"])) for each in written]
    if request is not None and request["spec"]["selectedNode"] == node:
        spec = request["spec"]
        return 2, [(*pair, "") for pair in zip(spec["selectedGPUGroups"], spec["selectedDevices"], strict=True)]
    return 2, []


def _real(device: str) -> str:
    return "" if "/" in device else device


def _group_of_reservation(cluster: Cluster, uid: str, node: str, ended: Any) -> str:
    for pod in cluster.all(PODS).values():
        there = pod["metadata"]["namespace"] == RESERVATIONS and pod["spec"].get("nodeName") == node
        if there and pod["metadata"]["uid"] == uid and not ended(pod):
            return str(pod["metadata"].get("labels", {}).get(names.GPU_GROUP_LABEL, ""))
    return ""


def _hear(known: dict[str, list[tuple[bool, int, str, str]]], said: tuple[int, Sequence[tuple[str, str, str]]]) -> None:
    rank, claims = said
    for group, device, uuid in claims:
        known.setdefault(group, []).append((not uuid, rank, device, uuid))


def _of_bound(cluster: Cluster, pod: Json, node: str, ended: Any) -> list[Entry]:
    here = devices(cluster, node)
    written = json.loads(_annotations(pod).get(names.SHARED_GPUS, "[]"))
    if written:
        elsewhere = _elsewhere(cluster, node, ended)
        return [_as_known(pod, each, here, elsewhere) for each in written]
    if not readable(pod):
        return []
    labels = pod["metadata"].get("labels", {})
    groups = sorted(value for name, value in labels.items() if name.startswith(f"{names.GPU_GROUP_LABEL}/"))
    groups = groups or [labels[names.GPU_GROUP_LABEL]] if names.GPU_GROUP_LABEL in labels else []
    found = [(group, _device_of(cluster, group, node, ended)) for group in groups]
    return [Entry(group, device or group, _mib(pod, here.get(device))) for group, device in found]


def _as_known(pod: Json, each: Json, here: dict[str, Memory], elsewhere: dict[str, str]) -> Entry:
    """A slot by its UUID if an agent reports it, with the memory that is known now."""
    device, mib, uuid = str(each["device"]), each["mib"], each.get("uuid", "")
    if "/" in device:
        device = uuid if uuid in here else elsewhere.get(each["group"], device)
        mib = (_mib(pod, here.get(device)) if readable(pod) else 0) or mib
    return Entry(each["group"], device, mib, uuid, written=True)


def _of_request(cluster: Cluster, pod: Json, spec: Json, ended: Any) -> list[Entry]:
    node = spec["selectedNode"]
    promised = spec.get("receivedGPU", {}).get("memoryMiB", 0)
    entries = []
    for group, planned in zip(spec["selectedGPUGroups"], spec["selectedDevices"], strict=True):
        device = _device_of(cluster, group, node, ended) or _places(cluster, node, ended)[0].get(group, planned)
        there = next((found[device] for name in _nodes(cluster) if device in (found := devices(cluster, name))), None)
        entries.append(Entry(group, device, _mib(pod, there) or promised))
    return entries


def _nodes(cluster: Cluster) -> set[str]:
    reported = {key.partition("/")[2] for key in cluster.all(REPORTS)}
    return {*cluster.all(NODES), *reported}


def _mib(pod: Json, memory: Memory | None) -> int:
    """What the pod takes of such a GPU."""
    annotations = _annotations(pod)
    if memory is None:
        return 0
    if names.GPU_SHARE_MEMORY in annotations:
        return int(annotations[names.GPU_SHARE_MEMORY]) if memory.measured else 0
    return int(annotations[names.GPU_FRACTION].removeprefix("0.").ljust(3, "0")) * memory.mib // 1000


def _device_of(cluster: Cluster, group: str, node: str, ended: Any) -> str:
    found = _reservations(cluster, group, ended)
    if not found:
        return ""
    first = min(found, key=lambda pod: (names.RESERVED_GPU not in _annotations(pod), pod["metadata"]["uid"]))
    here = devices(cluster, node)
    return next((device for device in reserved_by_annotation(cluster, first, ended) if device in here), "")


def _reservations(cluster: Cluster, group: str, ended: Any) -> list[Json]:
    return [
        pod
        for pod in cluster.all(PODS).values()
        if pod["metadata"]["namespace"] == RESERVATIONS
        and pod["metadata"].get("labels", {}).get(names.GPU_GROUP_LABEL) == group
        and not ended(pod)
    ]


def _annotations(pod: Json) -> dict[str, str]:
    found: dict[str, str] = pod["metadata"].get("annotations", {})
    return found
