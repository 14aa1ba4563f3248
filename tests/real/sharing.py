"""GPU sharing on a real node: the node gets GPUs that are not in MIG mode, and the planes of sharing are installed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.environments.installed import MANIFESTS, Installed
from tests.environments.waiting import until

PRODUCT = "NVIDIA-RTX-6000-Ada-Generation"
ANNOTATION = "apportion.io/emulated-gpus"
NAMESPACE = "kai-scheduler"
DEPLOYMENTS = {"binder": 2, "kai-scheduler": 1}


@contextmanager
def sharing_installed(planes: Installed, *, gpus: int) -> Iterator[None]:
    with whole_gpus(planes, gpus), sharing_planes(planes):
        yield


@contextmanager
def sharing_planes(planes: Installed) -> Iterator[None]:
    folder = str(MANIFESTS / "sharing")
    planes.kubectl("apply", "--server-side", "-f", folder)
    for name, replicas in DEPLOYMENTS.items():
        until(lambda name=name, replicas=replicas: ready(planes, name) == replicas, f"{name} is ready", within=120)  # type: ignore[misc]
    try:
        yield
    finally:
        planes.kubectl("delete", "deployments", "-n", NAMESPACE, "--all", "--wait=true", "--cascade=foreground")
        planes.kubectl("delete", "--wait=true", "--ignore-not-found", "-f", folder)


@contextmanager
def whole_gpus(planes: Installed, count: int) -> Iterator[None]:
    node = f"/api/v1/nodes/{planes.node.name}"
    before = planes.api.get(node)["metadata"].get("annotations", {}).get(ANNOTATION)
    wanted = json.dumps([{"product": PRODUCT, "count": count}])
    planes.api.merge(node, {"metadata": {"annotations": {ANNOTATION: wanted}}})
    until(lambda: offered(planes, "nvidia.com/gpu") == str(count), "the GPUs are there", within=60)
    try:
        yield
    finally:
        planes.api.merge(node, {"metadata": {"annotations": {ANNOTATION: before}}})
        until(lambda: offered(planes, "mig.das.com/1g.5gb") == "14", "the GPUs are as before", within=60)


def offered(planes: Installed, resource: str) -> str:
    status = planes.api.get(f"/api/v1/nodes/{planes.node.name}")["status"]
    return str(status["allocatable"].get(resource, ""))


def ready(planes: Installed, deployment: str) -> int:
    found = planes.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{deployment}")
    return int(found.get("status", {}).get("readyReplicas", 0))
