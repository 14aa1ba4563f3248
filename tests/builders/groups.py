"""Queues, groups of pods, and the objects that own pods."""

from __future__ import annotations

from typing import Any

from apportion.apis import names

Json = dict[str, Any]


def queue(name: str, *, parent: str = "", gpus: float | None = None, **spec: Any) -> Json:
    """A queue with a quota of GPUs; everything else goes into its spec."""
    resources = {"resources": {"gpu": {"quota": gpus}}} if gpus is not None else {}
    above = {"parentQueue": parent} if parent else {}
    return {"metadata": {"name": name}, "spec": {**above, **resources, **spec}}


def pod_group(name: str, minimum: int = 1, *, namespace: str = "default", **spec: Any) -> Json:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"minMember": minimum, **spec}}


def owner(
    api_version: str,
    kind: str,
    name: str,
    *,
    queue: str = "",
    labels: Json | None = None,
    above: Json | None = None,
    spec: Json | None = None,
    uid: str = "",
) -> Json:
    """An object that owns pods; `above` is the object that owns it."""
    own = {**({names.QUEUE_LABEL: queue} if queue else {}), **(labels or {})}
    metadata: Json = {"name": name, "namespace": "default", "labels": own}
    if uid:
        metadata["uid"] = uid
    if above is not None:
        metadata["ownerReferences"] = [reference(above)]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec or {}}


def job(name: str, *, queue: str = "", above: Json | None = None, **options: Any) -> Json:
    """A Job that creates no pods: the test does."""
    container = {"name": "main", "image": "busybox"}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {"parallelism": 0, "template": template}
    return owner("batch/v1", "Job", name, queue=queue, above=above, spec=spec, **options)


def reference(above: Json) -> Json:
    meta = above["metadata"]
    return {
        "apiVersion": above["apiVersion"],
        "kind": above["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


def owned(pod: Json, above: Json) -> Json:
    """The pod as this owner makes it."""
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [reference(above)]}}


def definition(group: str, kind: str, version: str = "v1") -> Json:
    """The definition of a kind whose objects can have any fields."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    approved = {"api-approved.kubernetes.io": "unapproved, for tests"}  # asked for in groups of the Kubernetes project
    return {
        "metadata": {"name": f"{plural}.{group}", "annotations": approved},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
