"""The fields of the planes that a DASOperator sets: driver, nodes, log level, runtime class.

Only these fields are applied, with our own field manager; all other fields belong to the installer of the
planes. A field that the DASOperator no longer sets is released. A node selector is atomic, so the operator owns
the node selector of the agents: additional labels belong in the DASOperator.
"""

from __future__ import annotations

from typing import Any

from apportion.apis.custom_resources.das_operator import DASOperatorSpec
from apportion.operator.workloads import ManagedPlane, ManagedWorkload

DRIVER = "APPORTION_DRIVER"
LOG_LEVEL = "APPORTION_LOG_LEVEL"
RUNTIME_CLASS = "APPORTION_RUNTIME_CLASS"
DRIVERS = {"enabled": "emulated", "disabled": "nvml"}
HARDWARE_RUNTIME_CLASS = "nvidia"


def environment(managed: ManagedWorkload, spec: DASOperatorSpec) -> dict[str, str]:
    wanted: dict[str, str] = {LOG_LEVEL: spec.log_level or "Normal"}
    if managed.plane is ManagedPlane.agent:
        wanted[DRIVER] = DRIVERS[spec.emulated_mode]
    if managed.plane is ManagedPlane.webhook and spec.emulated_mode == "disabled":
        wanted[RUNTIME_CLASS] = HARDWARE_RUNTIME_CLASS
    return wanted


def node_selector(managed: ManagedWorkload, spec: DASOperatorSpec) -> dict[str, str]:
    """Restricts the nodes of the agents in addition to their affinity."""
    return dict(spec.node_selector) if managed.plane is ManagedPlane.agent else {}


def body(managed: ManagedWorkload, spec: DASOperatorSpec, namespace: str) -> dict[str, Any]:
    """What is applied: our fields of the workload and nothing else."""
    # In the order of the manifests: another order would be a change, and cause a rollout.
    env = [{"name": name, "value": value} for name, value in environment(managed, spec).items()]
    pod: dict[str, Any] = {"containers": [{"name": managed.container, "env": env}]}
    if selector := node_selector(managed, spec):
        pod["nodeSelector"] = selector
    return {
        "apiVersion": managed.kind.api_version,
        "kind": managed.kind.kind,
        "metadata": {"name": managed.name, "namespace": namespace},
        "spec": {"template": {"spec": pod}},
    }


def holds(managed: ManagedWorkload, spec: DASOperatorSpec, template: dict[str, Any]) -> bool:
    """True if the workload already has the desired values, regardless of who set them."""
    pod = template.get("spec") or {}
    containers = {container.get("name"): container for container in pod.get("containers") or []}
    entries = containers.get(managed.container, {}).get("env") or []
    current = {entry.get("name"): entry.get("value", "") for entry in entries if "valueFrom" not in entry}
    wanted = node_selector(managed, spec)
    if wanted and pod.get("nodeSelector") != wanted:
        return False
    return environment(managed, spec).items() <= current.items()
