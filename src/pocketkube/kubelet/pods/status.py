"""A pod's status as a kubelet reports it: pure, from the records of its containers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from pocketkube.clock import stamp
from pocketkube.kubelet.pods import stages
from pocketkube.kubelet.pods.container_records import (
    ContainerRecord,
    Json,
    PodRecord,
    Role,
    Running,
    Terminated,
    Waiting,
)

RUNTIME = "containerd"


def pod_status(pod: Mapping[str, Any], record: PodRecord, now: float, *, final: bool = False) -> Json:
    """The whole status. `final`: the pod was stopped, so whatever has ended stays so."""
    spec = pod["spec"]
    policy = spec.get("restartPolicy", "Always")
    phase = "Failed" if record.failure[0] else _phase(record, policy, final=final)
    status: Json = {
        "phase": phase,
        "conditions": _conditions(pod, record, phase, now),
        "hostIP": record.host_ip,
        "hostIPs": [{"ip": record.host_ip}],
        "startTime": stamp(record.started_at),
        "containerStatuses": [_container(c) for c in sorted(record.of(Role.APP), key=_name)],
    }
    if generation := pod["metadata"].get("generation"):
        status["observedGeneration"] = generation
    if record.failure[0]:
        status["reason"], status["message"] = record.failure
    if record.ip:
        status["podIP"] = record.ip
        status["podIPs"] = [{"ip": record.ip}]
    if init := record.of(Role.INIT, Role.SIDECAR):
        status["initContainerStatuses"] = [_container(c) for c in init]
    return status


def rejected_status(reason: str, message: str, pod: Mapping[str, Any], now: float) -> Json:
    """A pod that the kubelet did not admit."""
    status: Json = {
        "phase": "Failed",
        "reason": reason,
        "message": f"Pod was rejected: {message}",
        "startTime": stamp(now),
    }
    if generation := pod["metadata"].get("generation"):
        status["observedGeneration"] = generation
    return status


def _name(container: ContainerRecord) -> str:
    return container.name


def _phase(record: PodRecord, policy: stages.RestartPolicy, *, final: bool) -> str:
    if policy == "Never" and any(_failed(c) for c in record.of(Role.INIT)):
        return "Failed"
    apps = record.of(Role.APP)
    if not stages.initialised(record):
        return "Failed" if final else "Pending"
    if any(c.fresh for c in apps):
        return "Failed" if final else "Pending"
    if any(c.running for c in apps):
        return "Running"
    if any(c.running for c in record.of(Role.SIDECAR)) or (not final and _restarts_to_come(apps, policy)):
        return "Running"
    return "Failed" if any(_failed(c) for c in apps) else "Succeeded"


def _restarts_to_come(apps: Sequence[ContainerRecord], policy: stages.RestartPolicy) -> bool:
    return any(stages.will_restart(c, policy) for c in apps)


def _failed(container: ContainerRecord) -> bool:
    return container.ended is not None and container.ended.exit_code != 0


def _conditions(pod: Mapping[str, Any], record: PodRecord, phase: str, now: float) -> list[Json]:
    unready = [c.name for c in record.of(Role.SIDECAR, Role.APP) if not c.ready]
    uninitialised = [c.name for c in record.of(Role.INIT, Role.SIDECAR) if not stages.init_done(c)]
    initialised = ("PodCompleted", "") if phase == "Succeeded" else ("", "")
    if uninitialised:
        initialised = ("ContainersNotInitialized", f"containers with incomplete status: [{' '.join(uninitialised)}]")
    containers = _why_unready(phase, unready)
    ready = containers
    if not containers[0] and (missing := _missing_gates(pod)):
        ready = ("ReadinessGatesNotReady", f'the status of pod readiness gate {missing!r} is not "True", but False')
    facts = {
        "PodReadyToStartContainers": (record.sandbox_ready, ("", "")),
        "Initialized": (not uninitialised, initialised),
        "Ready": (not ready[0], ready),
        "ContainersReady": (not containers[0], containers),
    }
    return [_condition(record, pod, kind, now, ok=ok, why=why) for kind, (ok, why) in facts.items()]


def _why_unready(phase: str, unready: list[str]) -> tuple[str, str]:
    """Reason and message of a pod that is not ready; both empty if it is."""
    if phase in ("Succeeded", "Failed"):
        return ("PodCompleted" if phase == "Succeeded" else "PodFailed"), ""
    if unready:
        return "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    return "", ""


def _missing_gates(pod: Mapping[str, Any]) -> str:
    held = {c["type"] for c in pod.get("status", {}).get("conditions") or [] if c.get("status") == "True"}
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or []]
    return " ".join(gate for gate in gates if gate not in held)


def _condition(
    record: PodRecord, pod: Mapping[str, Any], kind: str, now: float, *, ok: bool, why: tuple[str, str]
) -> Json:
    """One condition; its transition time moves only when its status does."""
    reason, message = why
    # The status is sent as a patch: what no longer holds must be taken back by name.
    condition: Json = {
        "type": kind,
        "status": "True" if ok else "False",
        "lastProbeTime": None,
        "reason": reason or None,
        "message": message or None,
    }
    if generation := pod["metadata"].get("generation"):
        condition["observedGeneration"] = generation
    before = record.conditions.get(kind)
    unchanged = before is not None and before["status"] == condition["status"]
    condition["lastTransitionTime"] = before["lastTransitionTime"] if before and unchanged else stamp(now)
    record.conditions[kind] = condition
    return condition


def _container(container: ContainerRecord) -> Json:
    image = container.spec.get("image", "")
    status: Json = {
        "name": container.name,
        "image": image,
        "imageID": _image_id(image) if container.container_id else "",
        "ready": container.ready,
        "started": container.started,
        "restartCount": container.restarts,
        "state": _state(container.state),
        "lastState": {} if container.last is None else _state(container.last),
    }
    if container.container_id:
        status["containerID"] = f"{RUNTIME}://{container.container_id}"
    if container.container_id:
        status["resources"] = container.spec.get("resources") or {}
        if requests := status["resources"].get("requests"):
            status["allocatedResources"] = requests
    if mounts := container.spec.get("volumeMounts"):
        status["volumeMounts"] = [_mount(mount) for mount in mounts]
    return status


def _mount(mount: Json) -> Json:
    made: Json = {"name": mount["name"], "mountPath": mount["mountPath"]}
    if mount.get("readOnly"):
        made |= {"readOnly": True, "recursiveReadOnly": "Disabled"}
    return made


def _image_id(image: str) -> str:
    name = image.partition("@")[0]
    base, _, last = name.rpartition("/")
    repository = f"{base}/{last.partition(':')[0]}" if base else last.partition(":")[0]
    return f"{repository}@sha256:{hashlib.sha256(image.encode()).hexdigest()}"


def _state(state: Waiting | Running | Terminated) -> Json:
    if isinstance(state, Running):
        return {"running": {"startedAt": stamp(state.started_at)}}
    if isinstance(state, Waiting):
        return {"waiting": {"reason": state.reason} | ({"message": state.message} if state.message else {})}
    ended: Json = {
        "exitCode": state.exit_code,
        "reason": state.reason,
        "startedAt": stamp(state.started_at),
        "finishedAt": stamp(state.finished_at),
        "containerID": f"{RUNTIME}://{state.container_id}",
    }
    if state.message:
        ended["message"] = state.message
    return {"terminated": ended}
