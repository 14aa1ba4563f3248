"""Deleting objects: at once, after finalizers, or after a pod's grace.

A deletion marks the object (`deletionTimestamp`) when something must still happen to it: finalizers, the
propagation policies that are finalizers too, or a kubelet that has to stop the pod. What nobody holds goes
at once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pocketkube.api import status
from pocketkube.api.content.conversion import Versions, bucket_of
from pocketkube.api.request_attributes import Attributes
from pocketkube.api.storage import metadata, store
from pocketkube.api.storage.listing import invalid_options
from pocketkube.api.storage.store import Bucket, Store, Stored
from pocketkube.api.storage.writer import ATTEMPTS, Admission, Options, Target

Obj = dict[str, Any]
CRDS = Bucket("apiextensions.k8s.io", "customresourcedefinitions")
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
_POLICIES = {"Orphan": ORPHAN, "Foreground": FOREGROUND, "Background": None}


class Deleter:
    def __init__(self, store: Store, versions: Versions, admission: Admission, clock: metadata.Clock) -> None:
        self._store = store
        self._versions = versions
        self._admission = admission
        self._clock = clock

    async def delete(
        self, target: Target, body: Obj, options: Options, *, of_collection: bool = False, admitted: bool = False
    ) -> tuple[int, Obj]:
        """Code and answer: the object while it is still there or was, else a Status of success.

        `of_collection`: the request named no object, and admission is told none. `admitted`: admission has seen the
        request in another form.
        """
        resource = target.resource
        check_options(body)
        name = "" if of_collection else target.name
        attrs = Attributes(
            "DELETE", resource, "", target.namespace, name, options.user, options.dry_run, body, options.warnings
        )
        for _ in range(ATTEMPTS):
            current = self._current(target)
            if current is None:
                raise status.not_found(resource, target.name)
            preconditions = body.get("preconditions") or {}
            metadata.check_preconditions(
                resource, current, preconditions.get("uid"), preconditions.get("resourceVersion")
            )
            if not admitted:
                await self._admission.validate(attrs, None, self._versions.from_storage(resource, current.decode()))
            try:
                return self._delete_once(target, body, options, current)
            except (store.Stale, store.Missing):
                continue
        raise status.conflict(resource, target.name)

    def _delete_once(self, target: Target, body: Obj, options: Options, current: Stored) -> tuple[int, Obj]:
        resource, bucket = target.resource, bucket_of(target.resource)
        namespace, name = current.key
        obj = current.decode()
        meta = obj["metadata"]
        if bucket == CRDS and not meta.get("deletionTimestamp"):
            return self._terminate_definition(obj, options, current)
        finalizers = _with_policy(list(meta.get("finalizers") or []), body)
        grace = _grace(target, obj, body)
        held = bool(finalizers) or _namespace_held(obj)
        before = current.decode()
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
        if not held and grace == 0:
            if meta.get("deletionTimestamp"):
                self._mark(obj, grace)
            return self._remove(target, obj, options, current)
        self._mark(obj, grace)
        if not obj["metadata"].get("deletionGracePeriodSeconds") and not held:
            return self._remove(target, obj, options, current)
        if obj != before and not options.dry_run:
            stored = self._store.update(bucket, namespace, name, obj, expected=current.revision)
            meta["resourceVersion"] = str(stored.revision)
        return 200, self._versions.from_storage(resource, obj)

    def _terminate_definition(self, definition: Obj, options: Options, current: Stored) -> tuple[int, Obj]:
        """A custom kind goes when all its objects have gone; whoever watches definitions sees to that."""
        now = metadata.timestamp(self._clock())
        definition["metadata"]["deletionTimestamp"] = now
        mark_terminating(definition, now)
        if not options.dry_run:
            stored = self._store.update(CRDS, *current.key, definition, expected=current.revision)
            definition["metadata"]["resourceVersion"] = str(stored.revision)
        return 200, definition

    def _mark(self, obj: Obj, grace: int) -> None:
        """Begin the deletion, or shorten one that has begun; a grace never grows."""
        meta = obj["metadata"]
        now = self._clock()
        if meta.get("deletionTimestamp"):
            before = meta.get("deletionGracePeriodSeconds") or 0
            if grace >= before:
                return
            begun = metadata.parse_timestamp(meta["deletionTimestamp"]) - timedelta(seconds=before)
            meta["deletionGracePeriodSeconds"] = grace
            meta["deletionTimestamp"] = metadata.timestamp(begun + timedelta(seconds=grace))
            return
        meta["deletionTimestamp"] = metadata.timestamp(now + timedelta(seconds=grace))
        if obj.get("kind") == "Namespace":
            obj.setdefault("status", {})["phase"] = "Terminating"
            return
        meta["deletionGracePeriodSeconds"] = grace
        if meta.get("generation"):
            meta["generation"] += 1

    def _remove(self, target: Target, obj: Obj, options: Options, current: Stored) -> tuple[int, Obj]:
        resource, (namespace, name) = target.resource, current.key
        if not options.dry_run:
            last = self._store.delete(bucket_of(resource), namespace, name, expected=current.revision)
            obj["metadata"]["resourceVersion"] = str(last.revision)
        if _answers_object(target):
            return 200, self._versions.from_storage(resource, obj)
        return 200, status.success(resource, name, current.uid)

    def _current(self, target: Target) -> Stored | None:
        namespace = target.namespace if target.resource.namespaced else ""
        return self._store.get(bucket_of(target.resource), namespace, target.name)


def mark_terminating(definition: Obj, now: str) -> None:
    """A definition that is being deleted says so and keeps itself until its objects are gone."""
    finalizers = definition["metadata"].setdefault("finalizers", [])
    if CLEANUP not in finalizers:
        finalizers.append(CLEANUP)
    conditions = definition.setdefault("status", {}).setdefault("conditions", [])
    if not any(each.get("type") == "Terminating" for each in conditions):
        conditions.append(
            {
                "type": "Terminating",
                "status": "True",
                "lastTransitionTime": now,
                "reason": "InstanceDeletionPending",
                "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            }
        )


def check_options(body: Obj) -> None:
    """DeleteOptions that make no sense are refused before anything is touched."""
    policy = body.get("propagationPolicy")
    orphan = body.get("orphanDependents")
    if policy is not None and orphan is not None:
        problem = "orphanDependents and deletionPropagation cannot be both set"
        raise invalid_options("DeleteOptions", "propagationPolicy", f'Invalid value: "{policy}": {problem}')
    if policy is not None and policy not in _POLICIES:
        problem = f'Unsupported value: "{policy}": supported values: "Foreground", "Background", "Orphan", "nil"'
        raise invalid_options("DeleteOptions", "propagationPolicy", problem)


def _with_policy(finalizers: list[str], body: Obj) -> list[str]:
    policy = body.get("propagationPolicy")
    if policy is None and body.get("orphanDependents") is not None:
        policy = "Orphan" if body["orphanDependents"] else "Background"
    if policy is None:
        return finalizers
    wanted = _POLICIES[policy]
    kept = [each for each in finalizers if each not in (ORPHAN, FOREGROUND) or each == wanted]
    return kept if wanted is None or wanted in kept else [*kept, wanted]


def _grace(target: Target, obj: Obj, body: Obj) -> int:
    """Seconds that a kubelet has to stop the pod; everything else has none."""
    if (target.resource.group, target.resource.plural) != ("", "pods"):
        return 0
    spec, pod_status = obj.get("spec") or {}, obj.get("status") or {}
    asked = body.get("gracePeriodSeconds")
    grace = asked if asked is not None else spec.get("terminationGracePeriodSeconds", 30)
    if grace < 0:
        grace = 1
    if not spec.get("nodeName") or pod_status.get("phase") in ("Succeeded", "Failed"):
        grace = 0
    return int(grace)


def _namespace_held(obj: Obj) -> bool:
    return obj.get("kind") == "Namespace" and bool((obj.get("spec") or {}).get("finalizers"))


def _answers_object(target: Target) -> bool:
    """Pods and a few others answer their last state, the rest a Status."""
    return (target.resource.group, target.resource.plural) in {
        ("", "pods"),
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("", "podtemplates"),
        ("", "resourcequotas"),
        ("", "serviceaccounts"),
        ("", "services"),
        ("storage.k8s.io", "csidrivers"),
        ("storage.k8s.io", "csinodes"),
        ("storage.k8s.io", "storageclasses"),
        ("storage.k8s.io", "volumeattachments"),
    }
