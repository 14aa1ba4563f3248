"""DASOperator: the one object that says how slicing is run. Rule S10."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from apportion.apis.meta import Conditions, ObjectMeta, Wire

ManagementState = Literal["Managed", "Unmanaged", "Force", "Removed"]
LogLevel = Literal["", "Normal", "Debug", "Trace", "TraceAll"]
NORMAL = {"default": "Normal"}


class DASOperatorSpec(Wire):
    management_state: Annotated[
        ManagementState,
        Meta(
            description="Managed configures the components, Unmanaged changes nothing, Removed deletes them.",
            extra_json_schema={"default": "Managed"},
        ),
    ] = "Managed"
    log_level: Annotated[
        LogLevel, Meta(description="Log level of webhook, scheduler and agents.", extra_json_schema=NORMAL)
    ] = "Normal"
    operator_log_level: Annotated[
        LogLevel, Meta(description="Log level of the operator.", extra_json_schema=NORMAL)
    ] = "Normal"
    emulated_mode: Annotated[
        Literal["enabled", "disabled"],
        Meta(
            description="enabled: agents emulate GPUs and do not use NVML.", extra_json_schema={"default": "disabled"}
        ),
    ] = "disabled"
    node_selector: Annotated[dict[str, str], Meta(description="Additional labels that nodes need for an agent.")] = {}
    observed_config: dict[str, Any] = {}
    unsupported_config_overrides: dict[str, Any] = {}


class DASOperatorStatus(Wire):
    conditions: Conditions = []
    observed_generation: int = 0
    ready_replicas: int = 0
    version: str = ""


class DASOperator(Wire):
    """Configuration of dynamic MIG slices on this cluster."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: DASOperatorSpec = msgspec.field(default_factory=DASOperatorSpec)
    status: DASOperatorStatus = msgspec.field(default_factory=DASOperatorStatus)
