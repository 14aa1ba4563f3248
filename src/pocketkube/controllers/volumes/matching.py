"""Which volume a claim may have, and what a volume that is made for it looks like."""

from __future__ import annotations

from collections.abc import Iterable

from apportion.apis import quantity
from pocketkube.controllers.controller import Json, deleting

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"


def claims_of(pod: Json) -> list[str]:
    volumes = pod["spec"].get("volumes") or ()
    return [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]


def smallest(volumes: Iterable[Json]) -> Json | None:
    return min(volumes, key=lambda volume: (_size(volume["spec"]["capacity"]), name(volume)), default=None)


def reserved_for(volume: Json, claim: Json) -> bool:
    """Whether somebody has chosen this volume for this claim."""
    reference, meta = volume["spec"].get("claimRef") or {}, claim["metadata"]
    return (reference.get("namespace"), reference.get("name")) == (meta["namespace"], meta["name"]) and reference.get(
        "uid", ""
    ) in ("", meta["uid"])


def may_have(volume: Json, claim: Json) -> bool:
    """Whether a claim that names a volume gets it: nobody else has it."""
    return not volume["spec"].get("claimRef") or reserved_for(volume, claim)


def fits(volume: Json, claim: Json) -> bool:
    spec, wanted = volume["spec"], claim["spec"]
    return (
        may_have(volume, claim)
        and not deleting(volume)
        and phase(volume) not in ("Bound", "Released", "Failed")
        and (spec.get("storageClassName") or "") == (wanted.get("storageClassName") or "")
        and spec.get("volumeMode", "Filesystem") == wanted.get("volumeMode", "Filesystem")
        and set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ())
        and _size(spec.get("capacity") or {}) >= _size((wanted.get("resources") or {}).get("requests") or {})
        and _selected(volume["metadata"].get("labels") or {}, wanted.get("selector") or {})
    )


def provisioned(volume_name: str, claim: Json, storage: Json) -> Json:
    spec, meta = claim["spec"], claim["metadata"]
    return {
        "metadata": {"name": volume_name, "annotations": {PROVISIONED_BY: storage["provisioner"]}},
        "spec": {
            "capacity": {"storage": (spec.get("resources") or {}).get("requests", {}).get("storage", "1Gi")},
            "accessModes": spec.get("accessModes") or ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": storage.get("reclaimPolicy", "Delete"),
            "storageClassName": spec.get("storageClassName") or "",
            "volumeMode": spec.get("volumeMode", "Filesystem"),
            "claimRef": reference(claim),
            "hostPath": {"path": f"/volumes/{meta['namespace']}/{meta['name']}"},
        },
    }


def reference(claim: Json) -> Json:
    meta = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "resourceVersion": meta["resourceVersion"],
    }


def phase(obj: Json) -> str:
    return str((obj.get("status") or {}).get("phase") or "")


def name(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def _size(amounts: Json) -> int:
    return quantity.whole(amounts.get("storage", "0"))


def _selected(labels: Json, selector: Json) -> bool:
    if not (selector.get("matchLabels") or {}).items() <= labels.items():
        return False
    for rule in selector.get("matchExpressions") or ():
        value, values = labels.get(rule["key"]), rule.get("values") or ()
        held = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not held.get(rule["operator"], False):
            return False
    return True
