"""What a reservation pod looks like: it asks the kubelet of a node for one GPU, and keeps it while pods share it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apportion.apis import names
from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.apis.installation import Installation
from apportion.apis.shared_gpus import Sharer, encode_sharers, reservation_name
from apportion.binder.sharing_config import SharingConfig

CONTAINER = "resource-reservation"
GRACE_SECONDS = 1  # its program has nothing to finish
USER = 65532
NEVER_DISRUPT = "karpenter.sh/do-not-disrupt"


def body(
    installation: Installation,
    config: SharingConfig,
    *,
    node: NodeName,
    group: str,
    planned: DeviceUUID,
    sharers: Mapping[PodUID, Sharer],
) -> dict[str, Any]:
    """A reservation pod for the first of its sharers, or for all of them if the one before was lost."""
    annotations = {
        names.PLANNED_GPU: planned,
        names.SHARERS: encode_sharers(sharers),
        NEVER_DISRUPT: "true",
    }
    spec: dict[str, Any] = {
        "nodeName": node,
        "serviceAccountName": installation.reservation_service_account,
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "restartPolicy": "Always",
        "enableServiceLinks": False,
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(installation.image)],
    }
    if runtime_class := config.runtime_class:
        spec["runtimeClassName"] = runtime_class
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": reservation_name(node, group),
            "namespace": installation.reservation_namespace,
            "labels": {names.COMPONENT_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: group},
            "annotations": annotations,
        },
        "spec": spec,
    }


def _container(image: str) -> dict[str, Any]:
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["apportion"],
        "args": ["reserve"],
        "env": [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()],
        "resources": {
            "requests": {"cpu": "1m", "memory": "24Mi"},
            "limits": {"memory": "96Mi", names.NVIDIA_GPU: "1"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
