"""The row of a pod: what `kubectl get pods` says about its state.

The STATUS column is the pod's phase or, where that says more, why its containers wait or how they ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pocketkube.api.tables import durations

Obj = dict[str, Any]
NONE = "<none>"


@dataclass(slots=True)
class _Summary:
    reason: str
    ready: int = 0
    total: int = 0
    restarts: int = 0
    last_restart: str = ""

    def restarted(self, container: Obj) -> None:
        self.restarts += container.get("restartCount") or 0
        ended = ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        self.last_restart = max(self.last_restart, ended)


def row(pod: Obj, now: datetime) -> list[Any]:
    spec, status, metadata = pod.get("spec") or {}, pod.get("status") or {}, pod.get("metadata") or {}
    summary = _summary(spec, status)
    if metadata.get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            summary.reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            summary.reason = "Terminating"
    restarts = str(summary.restarts)
    if summary.restarts and summary.last_restart:
        restarts += f" ({durations.age(summary.last_restart, now)} ago)"
    addresses = status.get("podIPs") or [{}]
    return [
        metadata.get("name", ""),
        f"{summary.ready}/{summary.total}",
        summary.reason,
        restarts,
        durations.age(metadata.get("creationTimestamp"), now),
        addresses[0].get("ip") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(spec, status),
    ]


def conditions(pod: Obj) -> list[Obj]:
    """Marks finished pods, which clients may hide."""
    phase = (pod.get("status") or {}).get("phase")
    if phase not in ("Succeeded", "Failed"):
        return []
    text = "The pod has completed successfully." if phase == "Succeeded" else "The pod failed."
    return [{"type": "Completed", "status": "True", "reason": phase, "message": text}]


def _summary(spec: Obj, status: Obj) -> _Summary:
    summary = _Summary(status.get("reason") or status.get("phase") or "")
    sidecars = {each.get("name") for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"}
    summary.total = len(spec.get("containers") or ()) + len(sidecars)
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            summary.reason = "SchedulingGated"
    of_sidecars = _Summary("")
    initializing = _init_containers(spec, status, summary, of_sidecars, sidecars)
    if not initializing or _is_true(status, "Initialized"):
        summary.restarts, summary.last_restart = of_sidecars.restarts, of_sidecars.last_restart
        _containers(status, summary)
    return summary


def _init_containers(spec: Obj, status: Obj, summary: _Summary, of_sidecars: _Summary, sidecars: set[Any]) -> bool:
    """Whether the pod is still initializing; the reason then says how far it is."""
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        summary.restarted(container)
        sidecar = container.get("name") in sidecars
        if sidecar:
            of_sidecars.restarted(container)
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if sidecar and container.get("started"):
            summary.ready += bool(container.get("ready"))
            continue
        if terminated is not None:
            summary.reason = "Init:" + _ended(terminated)
        elif waiting is not None and waiting.get("reason") not in (None, "", "PodInitializing"):
            summary.reason = "Init:" + waiting["reason"]
        else:
            summary.reason = f"Init:{index}/{len(spec.get('initContainers') or ())}"
        return True
    return False


def _containers(status: Obj, summary: _Summary) -> None:
    running = False
    for container in reversed(status.get("containerStatuses") or ()):
        summary.restarted(container)
        state = container.get("state") or {}
        if reason := (state.get("waiting") or {}).get("reason"):
            summary.reason = reason
        elif state.get("terminated") is not None:
            summary.reason = _ended(state["terminated"])
        elif container.get("ready") and state.get("running") is not None:
            running = True
            summary.ready += 1
    if summary.reason == "Completed" and running:
        summary.reason = "Running" if _is_true(status, "Ready") else "NotReady"


def _ended(terminated: Obj) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode') or 0}"


def _is_true(status: Obj, condition: str) -> bool:
    return any(
        each.get("type") == condition and each.get("status") == "True" for each in status.get("conditions") or ()
    )


def _gates(spec: Obj, status: Obj) -> str:
    gates = spec.get("readinessGates") or []
    if not gates:
        return NONE
    return f"{sum(_is_true(status, gate.get('conditionType')) for gate in gates)}/{len(gates)}"
