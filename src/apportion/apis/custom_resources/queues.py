"""Queue: a node of the tree by which GPUs, CPU and memory are shared out. Rules Q01, Q10 and Q12.

Amounts are numbers in GPUs, millicores and 10^6 bytes; -1 means unlimited. Numbers are decoded as decimals, so `0.1`
is one tenth, and `read` turns them into integers. What is not set is not filled in by the schema either: an object
stays as its author wrote it, and tools that compare it with a file find no difference. `read` knows the defaults.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Annotated

import msgspec
from msgspec import Meta

from apportion.apis import durations
from apportion.apis.errors import InputError
from apportion.apis.meta import Conditions, ObjectMeta, Wire

UNLIMITED = -1
DEFAULT_PRIORITY = 100
ORPHAN, OVER_QUOTA, OVERSUBSCRIBED, INVALID = "Orphan", "OverQuota", "Oversubscribed", "Invalid"
"""Types of conditions. Orphan: the parent does not exist; Invalid: the queue contradicts itself or is in a cycle."""

# Beyond every number that an API server stores; bounds the integers that are made of a number in a file.
_LARGEST_EXPONENT = 400
_MILLI_PER_GPU, _MILLI_PER_MILLICORE, _BYTES_PER_MEGABYTE = 1000, 1, 10**6

_AMOUNT_FIX = "use a number of 0 or more, or -1 for unlimited"
_WEIGHT_FIX = "use a number of 0 or more"
AMOUNT_RULE = {"rule": "self >= 0.0 || self == -1.0", "message": _AMOUNT_FIX}
WEIGHT_RULE = {"rule": "self >= 0.0", "message": _WEIGHT_FIX}
DURATION_RULE = {"rule": f"self.matches('{durations.PATTERN}')", "message": durations.FIX}
OWN_PARENT_RULE = {
    "rule": "!has(self.spec) || !has(self.spec.parentQueue) || self.spec.parentQueue != self.metadata.name",
    "message": "a queue cannot be its own parent: name another queue, or omit parentQueue for a root queue",
    "fieldPath": ".spec.parentQueue",
}

RULES = "x-kubernetes-validations"
_DURATION = {"maxLength": durations.LONGEST, RULES: [DURATION_RULE]}

Amount = Annotated[Decimal, Meta(extra_json_schema={RULES: [AMOUNT_RULE]})]
Weight = Annotated[Decimal, Meta(extra_json_schema={RULES: [WEIGHT_RULE]})]
ResourceList = dict[str, str]
"""Resource names (`nvidia.com/gpu`, `cpu`, `memory`) with quantities."""


class QueueResource(Wire):
    quota: Annotated[Amount, Meta(description="Guaranteed amount; -1 is unlimited, unset is 0.")] = Decimal(0)
    limit: Annotated[Amount, Meta(description="Maximum amount; -1 or unset is unlimited.")] = Decimal(UNLIMITED)
    over_quota_weight: Annotated[
        Weight, Meta(description="Weight of the queue when amounts above quotas are shared out; unset is 1.")
    ] = Decimal(1)


class QueueResources(Wire):
    gpu: Annotated[
        QueueResource, Meta(description="In GPUs. Fractions are allowed; they are rounded down to 0.001.")
    ] = msgspec.field(default_factory=QueueResource)
    cpu: Annotated[
        QueueResource | None, Meta(description="In millicores. If cpu is not set, its quota is unlimited.")
    ] = None
    memory: Annotated[
        QueueResource | None, Meta(description="In 10^6 bytes. If memory is not set, its quota is unlimited.")
    ] = None


class QueueSpec(Wire):
    display_name: str = ""
    parent_queue: Annotated[
        str, Meta(description="Parent queue; empty for a root queue.", extra_json_schema={"maxLength": 253})
    ] = ""
    priority: Annotated[
        int,
        Meta(
            description="Amounts above quotas go to queues with a higher priority first.",
            extra_json_schema={"default": DEFAULT_PRIORITY},
        ),
    ] = DEFAULT_PRIORITY
    resources: QueueResources = msgspec.field(default_factory=QueueResources)
    preempt_min_runtime: Annotated[
        str | None,
        Meta(
            description="How long a group runs before another group of its queue can preempt it, for example 10m.",
            extra_json_schema=_DURATION,
        ),
    ] = None
    reclaim_min_runtime: Annotated[
        str | None,
        Meta(
            description="How long a group runs before another queue can reclaim its resources, for example 10m.",
            extra_json_schema=_DURATION,
        ),
    ] = None


class QueueStatus(Wire):
    conditions: Conditions = []
    child_queues: Annotated[list[str], Meta(description="Queues that name this one as their parent.")] = []
    allocated: Annotated[ResourceList, Meta(description="Of all running pods, those of child queues included.")] = {}
    allocated_non_preemptible: Annotated[ResourceList, Meta(description="Of the pods that cannot be preempted.")] = {}
    requested: Annotated[ResourceList, Meta(description="Of all running and pending pods.")] = {}
    fair_share: Annotated[ResourceList, Meta(description="The share of the queue at present.")] = {}


class Queue(Wire):
    """Quota, limit and weight of a team or a project, for GPUs, CPU and memory."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: QueueStatus = msgspec.field(default_factory=QueueStatus)


class QueueError(InputError):
    """A stored queue that the present schema would refuse."""

    code = "InvalidQueue"


@dataclass(frozen=True, kw_only=True)
class ResourceSettings:
    """One resource of a queue, in integers; -1 is unlimited."""

    quota: int
    limit: int
    weight: Fraction


@dataclass(frozen=True, kw_only=True)
class QueueSettings:
    """A queue as decisions use it: milli-GPU, millicores, bytes and milliseconds."""

    name: str
    parent: str
    priority: int
    gpu: ResourceSettings
    cpu: ResourceSettings
    memory: ResourceSettings
    preempt_min_runtime: int | None
    """None: the parent decides."""
    reclaim_min_runtime: int | None


# CPU and memory: a queue that states GPUs alone must not refuse non-preemptible pods for their CPU.
_NOT_SET = ResourceSettings(quota=UNLIMITED, limit=UNLIMITED, weight=Fraction(1))


def read(queue: Queue) -> QueueSettings:
    """Raises QueueError with field, value and fix."""
    spec, name = queue.spec, queue.metadata.name
    if spec.parent_queue and spec.parent_queue == name:
        raise QueueError("spec.parentQueue", spec.parent_queue, OWN_PARENT_RULE["message"])
    return QueueSettings(
        name=name,
        parent=spec.parent_queue,
        priority=spec.priority,
        gpu=_resource(spec.resources.gpu, _MILLI_PER_GPU, "spec.resources.gpu"),
        cpu=_resource(spec.resources.cpu, _MILLI_PER_MILLICORE, "spec.resources.cpu"),
        memory=_resource(spec.resources.memory, _BYTES_PER_MEGABYTE, "spec.resources.memory"),
        preempt_min_runtime=_runtime(spec.preempt_min_runtime, "spec.preemptMinRuntime"),
        reclaim_min_runtime=_runtime(spec.reclaim_min_runtime, "spec.reclaimMinRuntime"),
    )


def _resource(resource: QueueResource | None, units: int, field: str) -> ResourceSettings:
    if resource is None:
        return _NOT_SET
    return ResourceSettings(
        quota=_amount(resource.quota, units, f"{field}.quota"),
        limit=_amount(resource.limit, units, f"{field}.limit"),
        weight=_weight(resource.over_quota_weight, f"{field}.overQuotaWeight"),
    )


def _amount(value: Decimal, units: int, field: str) -> int:
    """Rounded down, so that quotas that fit together still do, and a limit is never exceeded."""
    if value == UNLIMITED:
        return UNLIMITED
    if not _readable(value):
        raise QueueError(field, str(value), _AMOUNT_FIX)
    return math.floor(Fraction(value) * units)


def _weight(value: Decimal, field: str) -> Fraction:
    if not _readable(value):
        raise QueueError(field, str(value), _WEIGHT_FIX)
    return Fraction(value)


def _readable(value: Decimal) -> bool:
    return value.is_finite() and value >= 0 and (not value or abs(value.adjusted()) <= _LARGEST_EXPONENT)


def _runtime(text: str | None, field: str) -> int | None:
    if text is None:
        return None
    try:
        return durations.milliseconds(text, field=field)
    except InputError as error:
        raise QueueError(error.field, error.value, error.fix) from None
