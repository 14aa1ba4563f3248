"""The Deployments of the demo, as a user would write them, with NVIDIA's resource names."""

from __future__ import annotations

from typing import Any

from apportion.apis import names

NAMESPACE = "demo"
IMAGE = "busybox:1.36"
PRINT_DEVICES = ["sh", "-c", f"printenv {names.VISIBLE_DEVICES}; sleep infinity"]


def namespace() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def deployment(name: str, *, replicas: int, slices: dict[str, int]) -> dict[str, Any]:
    """A Deployment whose pods each have one container that requests these MIG profiles."""
    labels = {"app": name}
    limits = {f"{names.NVIDIA_MIG_PREFIX}{profile}": str(count) for profile, count in slices.items()}
    container = {"name": "work", "image": IMAGE, "command": PRINT_DEVICES, "resources": {"limits": limits}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
            },
        },
    }
