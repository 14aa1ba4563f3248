"""Kubernetes objects as a test says them in one line: nodes, reports, agents, claims, pods, volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apportion.apis import names
from apportion.apis.claims import claim_name
from apportion.core.catalog import Catalog

Json = dict[str, Any]
A100 = "NVIDIA A100-PCIE-40GB"
NAMESPACE = names.DAS_NAMESPACE
DELETED = "2026-01-01T00:00:00Z"


def node(
    name: str,
    devices: Mapping[str, int] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    taint: str = "",
    cordoned: bool = False,
) -> Json:
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "30", **{key: str(n) for key, n in (devices or {}).items()}}
    spec: Json = {"unschedulable": True} if cordoned else {}
    if taint:
        spec["taints"] = [{"key": taint, "effect": "NoSchedule"}]
    metadata = {"name": name, "labels": {names.HOSTNAME_LABEL: name, **(labels or {})}}
    return {"metadata": metadata, "spec": spec, "status": {"capacity": amounts, "allocatable": amounts}}


def slice_resources(gpus: int) -> dict[str, int]:
    """What the agent's device plugins offer for so many GPUs in MIG mode."""
    model = Catalog.shipped().find(A100)
    assert model is not None
    return {f"{names.SLICE_PREFIX}{p.name.replace('+', names.PLUS_ON_WIRE)}": p.most * gpus for p in model.profiles}


def gpu(uuid: str, *, mig: bool = True, **more: Any) -> Json:
    model = Catalog.shipped().find(A100)
    assert model is not None
    profiles = [{"name": p.name, "size": p.size, "starts": list(p.starts), "limit": p.limit} for p in model.profiles]
    found = {"uuid": uuid, "model": A100, "memoryMiB": model.memory_mib, "migEnabled": mig}
    return {**found, "profiles": profiles if mig else [], **more}


def accelerator(node: str, gpus: Sequence[Json], *, ready: bool = True, agent_uid: str = "agent") -> Json:
    status = {
        "gpus": list(gpus),
        "agent": {"namespace": NAMESPACE, "name": f"agent-{node}", "uid": f"{agent_uid}-{node}"},
        "conditions": [{"type": "Ready", "status": str(ready)}],
    }
    return {"metadata": {"name": node, "namespace": NAMESPACE}, "status": status}


def agent(node: str, *, ready: bool = True, uid: str = "agent") -> Json:
    """The pod of a node's agent; names of pods are unique, so its uid here is only unique on its node."""
    labels = {names.APP_LABEL: names.AGENT_APP}
    metadata = {"name": f"agent-{node}", "namespace": NAMESPACE, "uid": f"{uid}-{node}", "labels": labels}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": status}


def pod(
    name: str,
    asked: Mapping[str, int] | None = None,
    *,
    scheduler: str = names.DAS_SCHEDULER,
    node: str = "",
    created: str = "2026-01-01T00:00:00Z",
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    gates: Sequence[str] = (),
    tolerates: bool = False,
    selector: Mapping[str, str] | None = None,
    volume: str = "",
) -> Json:
    amounts = {key: str(n) for key, n in {"cpu": 1, **(asked or {})}.items()}
    container = {"name": "main", "image": "busybox", "resources": {"limits": amounts, "requests": amounts}}
    spec: Json = {"schedulerName": scheduler, "containers": [container]}
    if node:
        spec["nodeName"] = node
    if gates:
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    if tolerates:
        spec["tolerations"] = [{"operator": "Exists"}]
    if selector:
        spec["nodeSelector"] = dict(selector)
    if volume:
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": volume}}]
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "creationTimestamp": created,
        "annotations": dict(annotations or {}),
        "labels": dict(labels or {}),
    }
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def claim(pod: Json, profile: str, uuid: str, start: int, size: int, node: str, *, index: int = 0) -> Json:
    meta = pod["metadata"]
    reference = {"kind": "Pod", **{key: meta[key] for key in ("namespace", "name", "uid")}}
    spec = {
        "profile": profile,
        "gpuUUID": uuid,
        "migPlacement": {"start": start, "size": size},
        "nodename": node,
        "podRef": reference,
        "containers": ["main"],
    }
    metadata = {"name": claim_name(meta["uid"], "main", index), "namespace": NAMESPACE}
    return {"metadata": metadata, "spec": spec, "status": {"state": "created"}}


def storage_class(name: str, *, provisioned: bool) -> Json:
    return {
        "metadata": {"name": name},
        "provisioner": "example.com/disks" if provisioned else "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def volume_claim(name: str, kind: str, *, volume: str = "") -> Json:
    spec = {
        "storageClassName": kind,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": volume,
    }
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def volume(name: str, kind: str, node: str, *, claim: str = "") -> Json:
    term = {"matchExpressions": [{"key": names.HOSTNAME_LABEL, "operator": "In", "values": [node]}]}
    spec: Json = {
        "storageClassName": kind,
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    if claim:
        spec["claimRef"] = {"namespace": "default", "name": claim}
    phase = "Bound" if claim else "Available"
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}
