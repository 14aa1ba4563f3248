"""Questions about pods that several controllers ask."""

from __future__ import annotations

from typing import Any

import msgspec

from apportion.apis.selectors import LabelSelector
from pocketkube.clock import seconds_of
from pocketkube.controllers.controller import deleting

Json = dict[str, Any]


def phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def terminal(pod: Json) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def active(pod: Json) -> bool:
    """Neither ended nor about to end."""
    return not terminal(pod) and not deleting(pod)


def condition(pod: Json, kind: str) -> Json | None:
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each["type"] == kind:
            return dict(each)
    return None


def ready(pod: Json) -> bool:
    found = condition(pod, "Ready")
    return found is not None and found["status"] == "True"


def ready_since(pod: Json) -> float:
    found = condition(pod, "Ready")
    return seconds_of(found["lastTransitionTime"]) if found and found.get("lastTransitionTime") else 0.0


def available_in(pod: Json, seconds: int, now: float) -> float | None:
    """0 if a pod has been ready for long enough, seconds left if it will be, None if it is not ready."""
    if not ready(pod):
        return None
    return max(0.0, ready_since(pod) + seconds - now) if seconds else 0.0


def restarts(pod: Json) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((each.get("restartCount", 0) for each in statuses), default=0)


def created(obj: Json) -> float:
    return seconds_of(obj["metadata"]["creationTimestamp"])


def selector(raw: Json | None) -> LabelSelector:
    return msgspec.convert(raw or {}, LabelSelector)


def labels(obj: Json) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}
