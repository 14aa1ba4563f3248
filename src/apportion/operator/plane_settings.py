"""The fields of the planes that a DASOperator sets: driver, nodes, log level, runtime class.

Only these fields are applied, with our own field manager; all other fields belong to the installer of the
planes. A field that the DASOperator no longer sets is released. A node selector is atomic, so the operator owns
the node selector of the agents: additional labels belong in the DASOperator.
"""

from __future__ import annotations

from typing import Any

from apportion.apis.custom_resources.das_operator import DASOperatorSpec
from apportion.operator.workloads import AGENTS, WEBHOOK, ManagedWorkload

DRIVER = "APPORTION_DRIVER"
LOG_LEVEL = "APPORTION_LOG_LEVEL"
RUNTIME_CLASS = "APPORTION_RUNTIME_CLASS"
DRIVERS = {"enabled": "emulated", "disabled": "nvml"}
HARDWARE_RUNTIME_CLASS = "nvidia"


def environment(plane: ManagedWorkload, spec: DASOperatorSpec) -> dict[str, str]:
    wanted: dict[str, str] = {LOG_LEVEL: spec.log_level or "Normal"}
    if plane is AGENTS:
        wanted[DRIVER] = DRIVERS[spec.emulated_mode]
    if plane is WEBHOOK and spec.emulated_mode == "disabled":
        wanted[RUNTIME_CLASS] = HARDWARE_RUNTIME_CLASS
    return wanted


def node_selector(plane: ManagedWorkload, spec: DASOperatorSpec) -> dict[str, str]:
    """Restricts the nodes of the agents in addition to their affinity."""
    return dict(spec.node_selector) if plane is AGENTS else {}


def body(plane: ManagedWorkload, spec: DASOperatorSpec, namespace: str) -> dict[str, Any]:
    """What is applied: our fields of the workload and nothing else."""
    # In the order of the manifests: another order would be a change, and cause a rollout.
    env = [{"name": name, "value": value} for name, value in environment(plane, spec).items()]
    pod: dict[str, Any] = {"containers": [{"name": plane.container, "env": env}]}
    if selector := node_selector(plane, spec):
        pod["nodeSelector"] = selector
    return {
        "apiVersion": plane.kind.api_version,
        "kind": plane.kind.kind,
        "metadata": {"name": plane.name, "namespace": namespace},
        "spec": {"template": {"spec": pod}},
    }


def holds(plane: ManagedWorkload, spec: DASOperatorSpec, template: dict[str, Any]) -> bool:
    """True if the workload already has the desired values, regardless of who set them."""
    pod = template.get("spec") or {}
    containers = {container.get("name"): container for container in pod.get("containers") or []}
    entries = containers.get(plane.container, {}).get("env") or []
    current = {entry.get("name"): entry.get("value", "") for entry in entries if "valueFrom" not in entry}
    wanted = node_selector(plane, spec)
    if wanted and pod.get("nodeSelector") != wanted:
        return False
    return environment(plane, spec).items() <= current.items()
