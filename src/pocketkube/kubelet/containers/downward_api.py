"""References to a pod's own fields and resources: the downward API."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from apportion.apis import quantity

Pod = Mapping[str, Any]
_SUBSCRIPT = re.compile(r"(metadata\.(?:labels|annotations))\['(.+)'\]")


class FieldReferenceError(Exception):
    """A field path that a pod does not have."""


def field_value(pod: Pod, path: str) -> str:
    """The text of `metadata.name`, `metadata.labels['app']`, `status.podIP`, ..."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript:
        kind = subscript[1].rpartition(".")[2]
        return str((meta.get(kind) or {}).get(subscript[2], ""))
    values = {
        "metadata.name": meta.get("name"),
        "metadata.namespace": meta.get("namespace"),
        "metadata.uid": meta.get("uid"),
        "metadata.labels": _table(meta.get("labels")),
        "metadata.annotations": _table(meta.get("annotations")),
        "spec.nodeName": spec.get("nodeName"),
        "spec.serviceAccountName": spec.get("serviceAccountName"),
        "status.podIP": status.get("podIP"),
        "status.podIPs": status.get("podIP"),
        "status.hostIP": status.get("hostIP"),
        "status.hostIPs": status.get("hostIP"),
    }
    if path not in values:
        raise FieldReferenceError(f"unsupported fieldPath: {path}")
    return str(values[path] or "")


def resource_value(pod: Pod, reference: Mapping[str, Any], allocatable: Mapping[str, Any], *, container: str) -> str:
    """The number of `limits.cpu`, `requests.memory`, ... in units of the divisor, rounded up."""
    spec = pod["spec"]
    wanted = reference.get("containerName") or container
    found = [c for c in (*(spec.get("initContainers") or []), *spec["containers"]) if c["name"] == wanted]
    if not found:
        raise FieldReferenceError(f"container {wanted} not found")
    kind, _, resource = reference["resource"].partition(".")
    amount = (found[0].get("resources", {}).get(kind) or {}).get(resource)
    if amount is None:
        amount = allocatable.get(resource, "0") if kind == "limits" else "0"
    divisor = quantity.parse(reference.get("divisor") or "1") or 1
    return str(math.ceil(quantity.parse(amount) / divisor))


def _table(values: Mapping[str, str] | None) -> str:
    return "\n".join(f'{key}="{value}"' for key, value in sorted((values or {}).items()))
