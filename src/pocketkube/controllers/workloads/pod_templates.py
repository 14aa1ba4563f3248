"""Pods made from templates, and names made from their content."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import msgspec

from apportion.apis.kinds import Kind

Json = dict[str, Any]

HASH_LABEL = "pod-template-hash"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels and no look-alikes, as in names of a real cluster
_LENGTH = 10


def owner_reference(kind: Kind, owner: Json) -> Json:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_from(template: Json, kind: Kind, owner: Json, *, name: str = "", labels: Json | None = None) -> Json:
    """A pod of an owner's template; without a name the API server makes one."""
    meta = template.get("metadata") or {}
    metadata: Json = {
        "namespace": owner["metadata"]["namespace"],
        "labels": {**(meta.get("labels") or {}), **(labels or {})},
        "ownerReferences": [owner_reference(kind, owner)],
    }
    for field in ("annotations", "finalizers"):
        if meta.get(field):
            metadata[field] = copy.deepcopy(meta[field])
    if name:
        metadata["name"] = name
    else:
        metadata["generateName"] = f"{owner['metadata']['name']}-"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": copy.deepcopy(template["spec"])}


def digest(value: Any, salt: int | None = None) -> str:
    """A short, stable name for a piece of JSON."""
    data = msgspec.json.encode([value, salt], order="deterministic")
    number = int.from_bytes(hashlib.sha256(data).digest()[:8])
    text = ""
    for _ in range(_LENGTH):
        number, index = divmod(number, len(_ALPHABET))
        text += _ALPHABET[index]
    return text


def same_template(first: Json, second: Json) -> bool:
    """Whether two templates make the same pods, whatever hash they carry."""
    return _bare(first) == _bare(second)


def _bare(template: Json) -> Json:
    meta = dict(template.get("metadata") or {})
    meta.pop("creationTimestamp", None)
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key != HASH_LABEL}
    meta["labels"] = labels
    return {"metadata": meta, "spec": template["spec"]}
