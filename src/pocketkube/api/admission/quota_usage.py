"""What an object takes of a quota: under which names it counts, and which quotas take it in."""

from __future__ import annotations

from typing import Any

from pocketkube.api.admission import pod_resources
from pocketkube.api.storage.store import Bucket

Obj = dict[str, Any]

PODS = Bucket("", "pods")
SERVICES = Bucket("", "services")
CLAIMS = Bucket("", "persistentvolumeclaims")
COMPUTE = ("cpu", "memory", "ephemeral-storage")

_PLAIN = frozenset({"configmaps", "replicationcontrollers", "resourcequotas", "secrets", "services"})
_COUNT = "count/"
_OF_CLASS = ".storageclass.storage.k8s.io/"
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_OVER = ("Succeeded", "Failed")


def bucket_of_name(name: str) -> Bucket:
    """The objects that a name in a quota is about."""
    if name.startswith(_COUNT):
        plural, _, group = name.removeprefix(_COUNT).partition(".")
        return Bucket(group, plural)
    if name == "requests.storage" or _OF_CLASS in name or name == CLAIMS.plural:
        return CLAIMS
    if name in _PLAIN or name.startswith("services."):
        return Bucket("", name.partition(".")[0])
    return PODS


def usage(bucket: Bucket, obj: Obj) -> dict[str, str]:
    """What one object takes, as quantities, under every name that a quota can give it."""
    used = {_COUNT + (f"{bucket.plural}.{bucket.group}" if bucket.group else bucket.plural): "1"}
    if not bucket.group and bucket.plural in _PLAIN:
        used[bucket.plural] = "1"
    match bucket:
        case Bucket("", "pods"):
            used |= _of_pod(obj)
        case Bucket("", "services"):
            used |= _of_service(obj.get("spec") or {})
        case Bucket("", "persistentvolumeclaims"):
            used |= _of_claim(obj)
    return used


def concerns(spec: Obj, bucket: Bucket, obj: Obj) -> bool:
    """Whether a quota's scopes take an object in; only pods have any."""
    selected = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    scopes: list[tuple[str, str, list[str]]] = [
        *((name, "Exists", []) for name in spec.get("scopes") or ()),
        *((each.get("scopeName", ""), each.get("operator", ""), each.get("values") or []) for each in selected),
    ]
    if not scopes:
        return True
    return bucket == PODS and all(_in_scope(obj.get("spec") or {}, *scope) for scope in scopes)


def unspecified(hard: Obj, pod: Obj) -> list[str]:
    """Compute resources that a quota counts and a container says nothing about."""
    missing = []
    for key in sorted(hard):
        part, dot, name = key.partition(".")
        if not dot and key in COMPUTE:
            part, name = "requests", key
        if part not in ("requests", "limits") or name not in COMPUTE:
            continue
        silent = [
            container.get("name", "")
            for container in pod_resources.containers(pod.get("spec") or {})
            if name not in ((container.get("resources") or {}).get(part) or {})
        ]
        if silent:
            missing.append(f"{key} for: {','.join(silent)}")
    return missing


def _of_pod(pod: Obj) -> dict[str, str]:
    """A pod that has ended is still an object, but uses nothing."""
    if (pod.get("status") or {}).get("phase") in _OVER:
        return {}
    used = {"pods": "1"}
    for part in ("requests", "limits"):
        for name, amount in pod_resources.of_pod(pod.get("spec") or {}, part).items():
            if part == "limits" and name not in COMPUTE:
                continue
            used[f"{part}.{name}"] = amount
            if part == "requests" and (name in COMPUTE or name.startswith("hugepages-")):
                used[name] = amount
    return used


def _of_service(spec: Obj) -> dict[str, str]:
    kind, ports = spec.get("type", "ClusterIP"), spec.get("ports") or []
    given = [port for port in ports if port.get("nodePort")]
    nodeports = len(ports) if kind == "NodePort" else 0
    if kind == "LoadBalancer":
        nodeports = len(ports) if spec.get("allocateLoadBalancerNodePorts", True) else len(given)
    return {"services.nodeports": str(nodeports), "services.loadbalancers": str(int(kind == "LoadBalancer"))}


def _of_claim(claim: Obj) -> dict[str, str]:
    spec = claim.get("spec") or {}
    used = {
        CLAIMS.plural: "1",
        "requests.storage": ((spec.get("resources") or {}).get("requests") or {}).get("storage"),
    }
    annotated = (claim["metadata"].get("annotations") or {}).get(_CLASS_ANNOTATION)
    if storage_class := annotated or spec.get("storageClassName"):
        used |= {storage_class + _OF_CLASS + name: amount for name, amount in used.items()}
    return {name: str(amount) for name, amount in used.items() if amount is not None}


def _in_scope(spec: Obj, name: str, operator: str, values: list[str]) -> bool:
    given = spec.get("priorityClassName") or ""
    match name:
        case "Terminating" | "NotTerminating":
            return ("activeDeadlineSeconds" in spec) == (name == "Terminating")
        case "BestEffort" | "NotBestEffort":
            best_effort = not any(pod_resources.of_pod(spec, part) for part in ("requests", "limits"))
            return best_effort == (name == "BestEffort")
        case "PriorityClass":
            kept = {"In": given in values, "NotIn": given not in values, "Exists": bool(given)}
            return kept.get(operator, not given)
        case "CrossNamespacePodAffinity":
            return _reaches_out(spec)
        case _:
            return False


def _reaches_out(spec: Obj) -> bool:
    """Whether a pod's place depends on pods of other namespaces."""
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = (spec.get("affinity") or {}).get(kind) or {}
        terms = list(rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        preferred = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [each.get("podAffinityTerm") or {} for each in preferred]
        if any(term.get("namespaces") or "namespaceSelector" in term for term in terms):
            return True
    return False
