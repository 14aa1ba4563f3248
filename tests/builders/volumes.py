"""Storage classes, volume claims and volumes that are local to a node."""

from __future__ import annotations

from typing import Any

from apportion.apis import names

Json = dict[str, Any]


def storage_class(name: str, *, provisioned: bool) -> Json:
    """A class that waits for the first pod; `provisioned` if its volumes are made on demand."""
    return {
        "metadata": {"name": name},
        "provisioner": "example.com/disks" if provisioned else "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def volume_claim(name: str, storage_class: str, *, volume: str = "") -> Json:
    spec = {
        "storageClassName": storage_class,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": volume,
    }
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def volume(name: str, storage_class: str, node: str, *, claim: str = "") -> Json:
    term = {"matchExpressions": [{"key": names.HOSTNAME_LABEL, "operator": "In", "values": [node]}]}
    spec: Json = {
        "storageClassName": storage_class,
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    if claim:
        spec["claimRef"] = {"namespace": "default", "name": claim}
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Bound" if claim else "Available"}}
