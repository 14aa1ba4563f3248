"""Object metadata as the server keeps it: who may write what, and when generation grows."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pocketkube.api import status
from pocketkube.api.registry import Resource
from pocketkube.api.storage.store import Stored

Obj = dict[str, Any]
Clock = Callable[[], datetime]

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # as Kubernetes generates names: no vowels, no look-alikes
_SUFFIX = 5
_LONGEST_BASE = 63 - _SUFFIX
_random = random.SystemRandom()

# Kinds whose objects carry no generation; everything else counts changes of its spec.
_WITHOUT_GENERATION = frozenset(
    {
        ("", "configmaps"),
        ("", "endpoints"),
        ("", "events"),
        ("", "limitranges"),
        ("", "namespaces"),
        ("", "nodes"),
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("", "resourcequotas"),
        ("", "secrets"),
        ("", "serviceaccounts"),
        ("", "services"),
        ("apps", "controllerrevisions"),
        ("autoscaling", "horizontalpodautoscalers"),
        ("certificates.k8s.io", "certificatesigningrequests"),
        ("coordination.k8s.io", "leases"),
        ("node.k8s.io", "runtimeclasses"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("rbac.authorization.k8s.io", "rolebindings"),
        ("rbac.authorization.k8s.io", "roles"),
        ("resource.k8s.io", "resourceclaims"),
        ("resource.k8s.io", "resourceclaimtemplates"),
        ("storage.k8s.io", "csidrivers"),
        ("storage.k8s.io", "csinodes"),
        ("storage.k8s.io", "csistoragecapacities"),
        ("storage.k8s.io", "storageclasses"),
        ("storage.k8s.io", "volumeattachments"),
        ("storage.k8s.io", "volumeattributesclasses"),
    }
)
_SYSTEM_OWNED = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "generation",
)


def utc_now() -> datetime:
    return datetime.now(UTC)


def timestamp(moment: datetime) -> str:
    """RFC 3339 in whole seconds, as object metadata has it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    return datetime.fromisoformat(text)


def stamp_new(resource: Resource, obj: Obj, now: datetime) -> None:
    """What the server alone decides about a new object."""
    metadata = obj["metadata"]
    for name in (*_SYSTEM_OWNED, "resourceVersion"):
        metadata.pop(name, None)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = timestamp(now)
    if counts_generation(resource):
        metadata["generation"] = 1


def keep_system_fields(obj: Obj, old: Obj) -> None:
    """On an update these fields cannot be changed, and are not an error either."""
    metadata, before = obj["metadata"], old["metadata"]
    for name in _SYSTEM_OWNED:
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)
    metadata["resourceVersion"] = before["resourceVersion"]
    if before.get("namespace"):
        metadata["namespace"] = before["namespace"]


def raise_generation(resource: Resource, obj: Obj, old: Obj) -> None:
    """One more if what the user wants has changed."""
    if not counts_generation(resource):
        return
    if resource.custom:
        has_status = "status" in resource.subresources
        ignored = {"metadata", "status", "apiVersion", "kind"} if has_status else {"metadata", "apiVersion", "kind"}
        changed = {k: v for k, v in obj.items() if k not in ignored} != {
            k: v for k, v in old.items() if k not in ignored
        }
    elif "spec" in obj or "spec" in old:
        changed = obj.get("spec") != old.get("spec")
    else:
        ignored = {"metadata", "status", "apiVersion", "kind"}
        changed = {k: v for k, v in obj.items() if k not in ignored} != {
            k: v for k, v in old.items() if k not in ignored
        }
    if not changed and (resource.group, resource.plural) == ("apps", "deployments"):
        # a Deployment's annotations are copied to its ReplicaSets, so its controller must look again
        changed = (obj["metadata"].get("annotations") or {}) != (old["metadata"].get("annotations") or {})
    if changed:
        obj["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1


def counts_generation(resource: Resource) -> bool:
    return resource.custom or (resource.group, resource.plural) not in _WITHOUT_GENERATION


def generate_name(base: str) -> str:
    return base[:_LONGEST_BASE] + "".join(_random.choice(_ALPHABET) for _ in range(_SUFFIX))


def check_preconditions(resource: Resource, stored: Stored, uid: str | None, revision: str | None) -> None:
    """`preconditions` of a deletion."""
    if uid and uid != stored.uid:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({stored.uid}). "
            "The object might have been deleted and then recreated"
        )
    elif revision and revision != str(stored.revision):
        why = (
            f"the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record "
            f"({stored.revision}). The object might have been modified"
        )
    else:
        return
    problem = status.conflict(resource, stored.key.name, why)
    problem.message = problem.message.replace(status.qualified(resource), resource.kind, 1)
    problem.details = {"name": stored.key.name, "kind": resource.kind}
    raise problem
