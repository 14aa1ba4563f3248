"""Binding: the one write by which a scheduler gives a pod its node, atomically and only once."""

from __future__ import annotations

from typing import Any

from pocketkube.api import status
from pocketkube.api.status import Cause
from pocketkube.api.storage import metadata
from pocketkube.api.storage.writer import Options, Target, Update, Writer

Obj = dict[str, Any]


async def bind(writer: Writer, target: Target, body: Obj, options: Options, clock: metadata.Clock) -> Obj:
    """Assign the pod; answers a Status. A pod that has a node, goes away or is gated is a conflict."""
    node = _node(body)
    claimed = body.get("metadata") or {}

    def change(pod: Obj) -> Obj:
        _check(pod, claimed)
        pod["spec"]["nodeName"] = node
        annotations = claimed.get("annotations")
        if annotations:
            pod["metadata"].setdefault("annotations", {}).update(annotations)
        labels = {k: v for k, v in (claimed.get("labels") or {}).items() if k.startswith("topology.kubernetes.io/")}
        if labels:
            pod["metadata"].setdefault("labels", {}).update(labels)
        _mark_scheduled(pod, metadata.timestamp(clock()))
        return pod

    await writer.update(target, Update(change, internal=True), options)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _node(body: Obj) -> str:
    chosen = body.get("target")
    chosen = chosen if isinstance(chosen, dict) else {}
    causes: list[Cause] = []
    kind, name = chosen.get("kind") or "", chosen.get("name") or ""
    if kind not in ("", "Node"):
        causes.append(
            Cause(
                "target.kind",
                f'Unsupported value: "{kind}": supported values: "Node", "<empty>"',
                "FieldValueNotSupported",
            )
        )
    if not name or not isinstance(name, str):
        causes.append(Cause("target.name", "Required value", "FieldValueRequired"))
    if causes:
        raise status.invalid(_BINDING, str((body.get("metadata") or {}).get("name") or ""), causes)
    return str(name)


def _check(pod: Obj, claimed: Obj) -> None:
    meta, spec = pod["metadata"], pod["spec"]
    name = meta["name"]
    if claimed.get("uid") and claimed["uid"] != meta["uid"]:
        why = f"Precondition failed: UID in precondition: {claimed['uid']}, UID in object meta: {meta['uid']}"
        raise status.conflict(_PODS, name, why)
    if claimed.get("resourceVersion") and claimed["resourceVersion"] != meta["resourceVersion"]:
        raise _conflict(
            name,
            f"Precondition failed: ResourceVersion in precondition: {claimed['resourceVersion']}, "
            f"ResourceVersion in object meta: {meta['resourceVersion']}",
        )
    if meta.get("deletionTimestamp"):
        raise _conflict(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _conflict(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _conflict(name, f"pod {name} has non-empty .spec.schedulingGates")


def _mark_scheduled(pod: Obj, now: str) -> None:
    conditions = pod.setdefault("status", {}).setdefault("conditions", [])
    fresh: Obj = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    generation = pod["metadata"].get("generation")
    if generation:
        fresh["observedGeneration"] = generation
    for index, condition in enumerate(conditions):
        if condition.get("type") == "PodScheduled":
            if condition.get("status") == "True":
                fresh["lastTransitionTime"] = condition.get("lastTransitionTime", now)
            conditions[index] = fresh
            return
    conditions.append(fresh)


class _Pods:
    group, plural, kind = "", "pods", "Pod"


_PODS = _Pods()


class _Binding:
    group, plural, kind = "", "pods/binding", "Binding"


_BINDING = _Binding()


def _conflict(name: str, why: str) -> status.ApiStatus:
    return status.conflict(_BINDING, name, why)
