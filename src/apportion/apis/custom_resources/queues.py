"""Queue: a node of the tree by which GPUs, CPU and memory are shared out. Rule Q01.

-1 means unlimited. Units: GPUs, millicores, 10^6 bytes. Unset: quota 0, limit -1, weight 1.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from apportion.apis.meta import Conditions, ObjectMeta, Wire

UNLIMITED = -1
DEFAULT_PRIORITY = 100

Amount = Annotated[float, Meta(ge=-1)]


class QueueResource(Wire):
    quota: Annotated[Amount, Meta(description="Guaranteed amount; -1 is unlimited.")] = 0.0
    limit: Annotated[Amount, Meta(description="Maximum amount; -1 is unlimited.")] = -1.0
    over_quota_weight: Annotated[float, Meta(ge=0, description="Weight for amounts above quota.")] = 1.0


class QueueResources(Wire):
    gpu: Annotated[QueueResource, Meta(description="In GPUs; fractions allowed.")] = msgspec.field(
        default_factory=QueueResource
    )
    cpu: Annotated[QueueResource, Meta(description="In millicores.")] = msgspec.field(default_factory=QueueResource)
    memory: Annotated[QueueResource, Meta(description="In 10^6 bytes.")] = msgspec.field(default_factory=QueueResource)


class QueueSpec(Wire):
    display_name: str = ""
    parent_queue: Annotated[str, Meta(description="Parent queue; empty for a root queue.")] = ""
    priority: Annotated[
        int, Meta(description="Queues with a higher priority are served first.", extra_json_schema={"default": 100})
    ] = 100
    resources: QueueResources = msgspec.field(default_factory=QueueResources)


class QueueStatus(Wire):
    conditions: Conditions = []
    child_queues: list[str] = []
    allocated: dict[str, str] = {}
    requested: dict[str, str] = {}
    fair_share: dict[str, str] = {}


class Queue(Wire):
    """One queue."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: QueueStatus = msgspec.field(default_factory=QueueStatus)
