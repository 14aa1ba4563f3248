"""DASOperator: the one object that says how slicing is run. Rule S10."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from apportion.apis.meta import Conditions, ObjectMeta, Wire

ManagementState = Literal["Managed", "Unmanaged", "Force", "Removed"]
LogLevel = Literal["", "Normal", "Debug", "Trace", "TraceAll"]
NORMAL = {"default": "Normal"}
# What a Node may have as labels: another selector would be refused by the API server when the agents get it.
_LABEL_VALUE = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
_LABEL_KEY = r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_SELECTOR = {
    "maxProperties": 32,
    "additionalProperties": {"type": "string", "maxLength": 63, "pattern": _LABEL_VALUE},
    "x-kubernetes-validations": [
        {"rule": f"self.all(key, key.matches('{_LABEL_KEY}'))", "message": "keys must be label keys"}
    ],
}


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
    node_selector: Annotated[
        dict[str, str],
        Meta(description="Additional labels that nodes need for an agent.", extra_json_schema=_SELECTOR),
    ] = {}
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
