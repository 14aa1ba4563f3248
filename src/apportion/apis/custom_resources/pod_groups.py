"""PodGroup: pods that start together or not at all. Rule Q07."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from apportion.apis.meta import Conditions, ObjectMeta, Wire


class PodGroupSpec(Wire):
    min_member: Annotated[
        int, Meta(ge=1, description="Minimum number of pods that must run together.", extra_json_schema={"default": 1})
    ] = 1
    queue: Annotated[str, Meta(description="Queue of the group; empty: the label of its pods.")] = ""
    priority_class_name: str = ""


class PodGroupStatus(Wire):
    conditions: Conditions = []
    phase: str = ""
    pending: int = 0
    running: int = 0


class PodGroup(Wire):
    """Pods that start together or not at all."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)
