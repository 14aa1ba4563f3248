"""What a Deployment reports: counts over its ReplicaSets, and whether it is available and progressing."""

from __future__ import annotations

from apportion.apis.kinds import DEPLOYMENTS
from pocketkube.clock import seconds_of, stamp
from pocketkube.controllers.controller import Json, Reconciler, set_condition
from pocketkube.controllers.workloads.rollout_sizes import bounds


async def report(controller: Reconciler, deployment: Json, new: Json | None, olds: list[Json]) -> float | None:
    """Write the status; the answer is when the progress deadline must be looked at."""
    sets = [each for each in [*olds, new] if each is not None]
    before = deployment.get("status") or {}
    now = controller.clock.now()
    counts = {
        name: sum((each.get("status") or {}).get(name, 0) or 0 for each in sets)
        for name in ("replicas", "readyReplicas", "availableReplicas")
    }
    updated = ((new or {}).get("status") or {}).get("replicas", 0)
    wanted = deployment["spec"].get("replicas", 1)
    conditions = _available(deployment, before.get("conditions") or [], counts["availableReplicas"], stamp(now))
    again: float | None = None
    if deployment["spec"].get("paused"):
        conditions = _paused(conditions, stamp(now))
    else:
        conditions = _resumed(conditions, stamp(now))
        conditions, again = _progress(deployment, new, conditions, before, counts, updated, now)
    status = {
        "observedGeneration": deployment["metadata"].get("generation", 1),
        "replicas": counts["replicas"] or None,
        "updatedReplicas": updated or None,
        "readyReplicas": counts["readyReplicas"] or None,
        "availableReplicas": counts["availableReplicas"] or None,
        "unavailableReplicas": max(0, max(wanted, counts["replicas"]) - counts["availableReplicas"]) or None,
        "conditions": conditions,
    }
    await controller.set_status(DEPLOYMENTS, deployment, status)
    return again


def _available(deployment: Json, conditions: list[Json], available: int, now: str) -> list[Json]:
    spec = deployment["spec"]
    wanted = spec.get("replicas", 1)
    rolling = spec.get("strategy", {}).get("rollingUpdate") or {}
    missing = 0
    if spec.get("strategy", {}).get("type") != "Recreate":
        missing = bounds(wanted, rolling.get("maxSurge", "25%"), rolling.get("maxUnavailable", "25%")).unavailable
    if available >= wanted - missing:
        why = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        why = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    return _touched(conditions, "Available", why, now)


def _paused(conditions: list[Json], now: str) -> list[Json]:
    """A rollout that has failed stays so; any other waits for a person."""
    if _reason(conditions) == "ProgressDeadlineExceeded":
        return conditions
    return _touched(conditions, "Progressing", ("Unknown", "DeploymentPaused", "Deployment is paused"), now)


def _resumed(conditions: list[Json], now: str) -> list[Json]:
    if _reason(conditions) != "DeploymentPaused":
        return conditions
    return _touched(conditions, "Progressing", ("Unknown", "DeploymentResumed", "Deployment is resumed"), now)


def _reason(conditions: list[Json]) -> str:
    return next((str(each["reason"]) for each in conditions if each["type"] == "Progressing"), "")


def _progress(
    deployment: Json,
    new: Json | None,
    conditions: list[Json],
    before: Json,
    counts: dict[str, int],
    updated: int,
    now: float,
) -> tuple[list[Json], float | None]:
    wanted = deployment["spec"].get("replicas", 1)
    name = new["metadata"]["name"] if new else ""
    complete = updated == wanted == counts["availableReplicas"] == counts["replicas"]
    old = next((each for each in conditions if each["type"] == "Progressing"), None)
    if complete and new is not None:
        why = ("True", "NewReplicaSetAvailable", f'ReplicaSet "{name}" has successfully progressed.')
        return _touched(conditions, "Progressing", why, stamp(now)), None
    if old is None and new is not None:
        why = ("True", "NewReplicaSetCreated", f'Created new replica set "{name}"')
        return _touched(conditions, "Progressing", why, stamp(now)), _deadline(deployment)
    moved = (
        updated != before.get("updatedReplicas", 0)
        or counts["replicas"] != before.get("replicas", 0)
        or counts["availableReplicas"] > before.get("availableReplicas", 0)
    )
    if old is None or moved or old["reason"] == "NewReplicaSetAvailable":
        why = ("True", "ReplicaSetUpdated", f'ReplicaSet "{name}" is progressing.')
        return _touched(conditions, "Progressing", why, stamp(now), update=True), _deadline(deployment)
    left = seconds_of(old["lastUpdateTime"]) + _deadline(deployment) - now
    if left > 0:
        return conditions, max(left, 1.0)
    why = ("False", "ProgressDeadlineExceeded", f'ReplicaSet "{name}" has timed out progressing.')
    return _touched(conditions, "Progressing", why, stamp(now)), None


def _deadline(deployment: Json) -> float:
    return float(deployment["spec"].get("progressDeadlineSeconds", 600))


def _touched(
    conditions: list[Json], kind: str, why: tuple[str, str, str], now: str, *, update: bool = False
) -> list[Json]:
    """Set a condition; its update time moves when its reason or status does, or when asked to."""
    status, reason, message = why
    old = next((each for each in conditions if each["type"] == kind), None)
    same = old is not None and (old["status"], old["reason"], old["message"]) == why
    if old is not None and same and not update:
        return conditions
    return set_condition(conditions, kind, status, reason, message, now, lastUpdateTime=now)
