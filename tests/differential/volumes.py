"""Storage for random worlds: classes that are always there, and claims and volumes that come with a world.

Claims are bound (and so pin their pods to the nodes of a volume), wait for a first consumer (and need a ready-made
volume or a provisioner that serves the node), wait for a controller that does not exist, or are missing altogether.
"""

from __future__ import annotations

import random
from typing import Any

JSON = dict[str, Any]

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
NAMES = tuple(f"claim-{number}" for number in range(5))
MISSING = "claim-missing"


def classes() -> list[JSON]:
    waiting = {"volumeBindingMode": "WaitForFirstConsumer"}
    topology = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]
    return [
        _class("immediate", "example.com/maker", {"volumeBindingMode": "Immediate"}),
        _class("waiting", "example.com/maker", waiting),
        _class("waiting-zonal", "example.com/maker", waiting | {"allowedTopologies": topology}),
        _class("local", "kubernetes.io/no-provisioner", waiting),
    ]


def storage(dice: random.Random, namespaces: list[str]) -> tuple[list[JSON], list[JSON]]:
    """Claims of every namespace under the same names, and volumes, some of them theirs."""
    claims, volumes = [], [_volume(dice, f"free-{number}", "local") for number in range(dice.randint(0, 3))]
    for namespace in namespaces:
        for name in NAMES:
            claim = _claim(dice, namespace, name)
            if dice.random() < 0.4:
                volume = _volume(dice, f"{namespace}-{name}", claim["spec"]["storageClassName"])
                volume["spec"]["claimRef"] = {"namespace": namespace, "name": name, "kind": "PersistentVolumeClaim"}
                claim["spec"]["volumeName"] = volume["metadata"]["name"]
                claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
                volumes.append(volume)
            claims.append(claim)
    return claims, volumes


def mounts(dice: random.Random) -> list[JSON]:
    """The `volumes` of a pod."""
    names = dice.sample(NAMES, dice.choice((1, 1, 2)))
    if dice.random() < 0.05:
        names.append(MISSING)
    return [{"name": f"v{number}", "persistentVolumeClaim": {"claimName": name}} for number, name in enumerate(names)]


def _class(name: str, provisioner: str, more: JSON) -> JSON:
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    return kind | {"provisioner": provisioner} | more


def _claim(dice: random.Random, namespace: str, name: str) -> JSON:
    kind = dice.choices(("local", "waiting", "waiting-zonal", "immediate"), (4, 2, 3, 1))[0]
    modes = ["ReadWriteOncePod"] if dice.random() < 0.15 else ["ReadWriteOnce"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "storageClassName": kind,
            "accessModes": modes,
            "resources": {"requests": {"storage": dice.choice(("1Gi", "5Gi"))}},
        },
    }


def _volume(dice: random.Random, name: str, kind: str) -> JSON:
    labels = {}
    if dice.random() < 0.15:
        labels[ZONE] = dice.choice(("a", "b__c"))
    key, values = dice.choice(((ZONE, ["a"]), (ZONE, ["b", "c"]), (HOST, ["node-0", "node-1", "node-2"])))
    requirement = {"key": key, "operator": dice.choice(("In", "In", "NotIn")), "values": values}
    spec: JSON = {
        "capacity": {"storage": dice.choice(("2Gi", "10Gi"))},
        "accessModes": dice.choice((["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"], ["ReadWriteOncePod"])),
        "storageClassName": kind,
        "hostPath": {"path": "/data"},
    }
    if dice.random() < 0.8:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }
