"""Config: the switches of sharing and grouping, in one cluster-wide object named kai-config. Rules G01, G07, Q11."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from apportion.apis.custom_resources.schema import OPEN
from apportion.apis.meta import Conditions, ObjectMeta, Wire

_FILLED = Meta(extra_json_schema={"default": {}})  # so that defaults within it are shown


class AdmissionConfig(Wire):
    gpu_sharing: Annotated[
        bool,
        Meta(
            description="Allow pods to request a fraction or an amount of GPU memory.",
            extra_json_schema={"default": False},
        ),
    ] = msgspec.field(default=False, name="gpuSharing")
    gpu_pod_runtime_class_name: Annotated[
        str | None,
        Meta(description="Runtime class of pods with a share of a GPU that set none; empty: none, unset: the default."),
    ] = None


class ResourceReservationConfig(Wire):
    namespace: str = ""
    runtime_class_name: Annotated[
        str | None, Meta(description="Runtime class of reservation pods; empty: none, unset: the default.")
    ] = None
    allocation_timeout: Annotated[
        int,
        Meta(ge=0, description="Seconds that a reservation pod may take to get its GPU; 0: the default, 40 seconds."),
    ] = 0


class BinderConfig(Wire):
    cdi_enabled: Annotated[
        bool,
        Meta(
            description="Name GPUs by their CDI names of NVIDIA's device plugin in NVIDIA_VISIBLE_DEVICES.",
            extra_json_schema={"default": False},
        ),
    ] = False
    resource_reservation: Annotated[ResourceReservationConfig, OPEN] = msgspec.field(
        default_factory=ResourceReservationConfig
    )


class PodGrouperConfig(Wire):
    every_pod: Annotated[
        bool,
        Meta(
            description="Create a PodGroup for every group, also for groups of one pod, not only for gangs.",
            extra_json_schema={"default": False},
        ),
    ] = False
    owner_kinds: Annotated[
        list[dict[str, Any]],
        Meta(
            description="Further kinds of owners whose pods form groups: API group, kind, and where the minimum, the"
            " queue and the priority class are. A row replaces the built-in rows of its kind."
        ),
    ] = []


class ConfigSpec(Wire):
    namespace: str = ""
    pod_grouper: Annotated[PodGrouperConfig, OPEN] = msgspec.field(default_factory=PodGrouperConfig)
    admission: Annotated[AdmissionConfig, OPEN, _FILLED] = msgspec.field(default_factory=AdmissionConfig)
    binder: Annotated[BinderConfig, OPEN] = msgspec.field(default_factory=BinderConfig)


class ConfigStatus(Wire):
    conditions: Conditions = []


class Config(Wire):
    """Configuration of GPU sharing and of groups of pods."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: Annotated[ConfigSpec, _FILLED] = msgspec.field(default_factory=ConfigSpec)
    status: ConfigStatus = msgspec.field(default_factory=ConfigStatus)
