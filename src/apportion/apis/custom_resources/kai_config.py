"""Config: the switches of sharing, in one cluster-wide object named kai-config. Rules G01 and G07."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from apportion.apis.meta import Conditions, ObjectMeta, Wire


class AdmissionConfig(Wire):
    gpu_sharing: Annotated[
        bool,
        Meta(
            description="Allow pods to request a fraction or an amount of GPU memory.",
            extra_json_schema={"default": False},
        ),
    ] = msgspec.field(default=False, name="gpuSharing")


class ResourceReservationConfig(Wire):
    namespace: str = ""
    runtime_class_name: Annotated[
        str | None, Meta(description="Runtime class of reservation pods; empty: none, unset: the default.")
    ] = None


class BinderConfig(Wire):
    resource_reservation: ResourceReservationConfig = msgspec.field(default_factory=ResourceReservationConfig)


class ConfigSpec(Wire):
    namespace: str = ""
    admission: AdmissionConfig = msgspec.field(default_factory=AdmissionConfig)
    binder: BinderConfig = msgspec.field(default_factory=BinderConfig)


class ConfigStatus(Wire):
    conditions: Conditions = []


class Config(Wire):
    """Configuration of GPU sharing."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ConfigSpec = msgspec.field(default_factory=ConfigSpec)
    status: ConfigStatus = msgspec.field(default_factory=ConfigStatus)
