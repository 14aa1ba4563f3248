"""PodGroup: pods that start together or not at all. Rules Q07 and Q12.

People write PodGroups, or the scheduler does for gangs (rule Q11). The status has the form that tools of the original
scheduler read: `schedulingConditions` with reasons and the numbers of the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from apportion.apis import names
from apportion.apis.custom_resources.queues import RULES, ResourceList
from apportion.apis.errors import InputError
from apportion.apis.meta import ObjectMeta, Wire
from apportion.apis.priorities import NON_PREEMPTIBLE, PREEMPTIBLE

UNSCHEDULABLE_ON_NODE_POOL = "UnschedulableOnNodePool"
"""The type of scheduling conditions."""
NON_PREEMPTIBLE_OVER_QUOTA, OVER_LIMIT = "NonPreemptibleOverQuota", "OverLimit"
QUEUE_DOES_NOT_EXIST, POD_SCHEDULING_ERRORS = "QueueDoesNotExist", "PodSchedulingErrors"
"""Reasons of scheduling conditions. A reason without numbers of a queue is PodSchedulingErrors."""
DEFAULT_NODE_POOL = "default"
BELOW_MINIMUM = "BelowMinimum"
"""A condition: pods of the group run, but not its minimum."""
PENDING, RUNNING, UNKNOWN, SUCCEEDED, FAILED = "Pending", "Running", "Unknown", "Succeeded", "Failed"
"""Phases of groups. Unknown: some pods run, but not the minimum."""

_AT_LEAST_ONE = {"minimum": 1}
_PREEMPTIBILITY = {"enum": ["", PREEMPTIBLE, NON_PREEMPTIBLE]}
_LABEL = "^[a-z0-9][a-z0-9-]*$"
# Rules compare all subgroups with each other; API servers bound what that may cost.
_MOST_SUBGROUPS = 128
_PARENT_FIX = "parent must be the name of another entry of subGroups"
_CYCLE_FIX = "subgroups must not be each other's parents: remove the parent of one of them"
_SUBGROUPS = {
    "maxItems": _MOST_SUBGROUPS,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    RULES: [
        {
            "rule": "self.all(each, !has(each.parent) || each.parent == '' ||"
            " (each.parent != each.name && self.exists(other, other.name == each.parent)))",
            "message": _PARENT_FIX,
        },
        # Longer cycles would need a rule of higher cost; `read` finds them.
        {
            "rule": "self.all(each, !has(each.parent) || each.parent == each.name || !self.exists(other,"
            " other.name == each.parent && has(other.parent) && other.parent == each.name))",
            "message": _CYCLE_FIX,
        },
    ],
}


class TopologyConstraint(Wire):
    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class SubGroupSpec(Wire, kw_only=True):
    """A part of the group with a minimum of its own, for example the workers."""

    name: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 63, "pattern": _LABEL})]
    min_member: Annotated[
        int,
        Meta(description="Minimum number of pods of the subgroup; unset is 1.", extra_json_schema=_AT_LEAST_ONE),
    ] = 1
    parent: Annotated[
        str, Meta(description="The subgroup that this one is part of.", extra_json_schema={"maxLength": 63})
    ] = ""
    topology_constraint: TopologyConstraint | None = None


class PodGroupSpec(Wire):
    min_member: Annotated[
        int,
        Meta(
            description="Minimum number of pods that must run together.",
            extra_json_schema=_AT_LEAST_ONE | {"default": 1},
        ),
    ] = 1
    queue: Annotated[str, Meta(description="Queue of the group; empty: the label of its pods.")] = ""
    priority_class_name: str = ""
    preemptibility: Annotated[
        str,
        Meta(description="Whether the group can be preempted; empty: by priority.", extra_json_schema=_PREEMPTIBILITY),
    ] = ""
    sub_groups: Annotated[list[SubGroupSpec], Meta(extra_json_schema=_SUBGROUPS)] = []
    topology_constraint: TopologyConstraint | None = None
    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int | None = None
    mark_unschedulable: bool | None = None
    scheduling_backoff: int | None = None


class PodGroupCondition(Wire, omit_defaults=False):
    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    transition_id: str = msgspec.field(default="", name="transitionID")


class QueueDetails(Wire):
    """The numbers of the queue that blocks the group, at the time of the attempt."""

    name: str = ""
    queue_requested_resources: ResourceList = {}
    queue_deserved_resources: ResourceList = {}
    queue_allocated_resources: ResourceList = {}
    queue_allocated_non_preemptible_resources: ResourceList = {}
    queue_resource_limits: ResourceList = {}
    pod_group_requested_resources: ResourceList = {}
    pod_group_requested_non_preemptible_resources: ResourceList = {}


class UnschedulableDetails(Wire):
    queue_details: QueueDetails | None = None


class UnschedulableReason(Wire):
    reason: str = ""
    message: str = ""
    details: UnschedulableDetails | None = None


class SchedulingCondition(Wire, omit_defaults=False):
    """Why the scheduler could not place the group."""

    type: str = UNSCHEDULABLE_ON_NODE_POOL
    node_pool: str = DEFAULT_NODE_POOL
    status: str = "True"
    reason: Annotated[str, Meta(description="The first of reasons, for older clients.")] = ""
    message: Annotated[str, Meta(description="The first of reasons, for older clients.")] = ""
    reasons: list[UnschedulableReason] = []
    transition_id: Annotated[str, Meta(description="A number that grows with every change.")] = msgspec.field(
        default="", name="transitionID"
    )
    last_transition_time: str = ""


class ResourcesStatus(Wire):
    allocated: ResourceList = {}
    allocated_non_preemptible: ResourceList = {}
    requested: ResourceList = {}


class PodGroupStatus(Wire):
    phase: str = ""
    conditions: Annotated[
        list[PodGroupCondition],
        Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = []
    scheduling_conditions: list[SchedulingCondition] = []
    resources_status: ResourcesStatus | None = None
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class PodGroup(Wire):
    """Pods that start together or not at all."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


def is_managed(group: PodGroup) -> bool:
    """The scheduler made it, and may change and delete it; all others belong to users."""
    return group.metadata.labels.get(names.MANAGED_BY_LABEL) == names.MANAGED_BY_SCHEDULER


def condition(group: PodGroup, kind: str) -> PodGroupCondition | None:
    return next((each for each in group.status.conditions if each.type == kind), None)


class PodGroupError(InputError):
    """A stored group that the present schema would refuse, or a cycle of subgroups."""

    code = "InvalidPodGroup"


@dataclass(frozen=True, kw_only=True)
class Subgroup:
    """A subgroup that has pods, and the subgroups that it is part of, innermost first."""

    name: str
    minimum: int
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """A group as decisions use it. Subgroups that only contain others are not listed: they have no pods."""

    minimum: int
    queue: str
    priority_class: str
    preemptibility: str
    subgroups: tuple[Subgroup, ...]


def read(group: PodGroup) -> GroupSettings:
    """Raises PodGroupError with field, value and fix."""
    spec = group.spec
    if spec.min_member < 1:
        raise PodGroupError("spec.minMember", spec.min_member, "use 1 or more")
    if spec.preemptibility not in _PREEMPTIBILITY["enum"]:
        fix = f"use {PREEMPTIBLE}, {NON_PREEMPTIBLE}, or omit it"
        raise PodGroupError("spec.preemptibility", spec.preemptibility, fix)
    return GroupSettings(
        minimum=spec.min_member,
        queue=spec.queue,
        priority_class=spec.priority_class_name,
        preemptibility=spec.preemptibility,
        subgroups=_subgroups(spec.sub_groups),
    )


def _subgroups(entries: list[SubGroupSpec]) -> tuple[Subgroup, ...]:
    parents: dict[str, str] = {}
    for index, entry in enumerate(entries):
        at = f"spec.subGroups[{index}]"
        if entry.name in parents:
            raise PodGroupError(f"{at}.name", entry.name, "use each name once")
        if entry.min_member < 1:
            raise PodGroupError(f"{at}.minMember", entry.min_member, "use 1 or more")
        parents[entry.name] = entry.parent
    inner = set(parents.values())
    found = []
    for index, entry in enumerate(entries):
        chain = _chain(entry, parents, f"spec.subGroups[{index}].parent")
        if entry.name not in inner:
            found.append(Subgroup(name=entry.name, minimum=entry.min_member, parents=chain))
    return tuple(found)


def _chain(entry: SubGroupSpec, parents: Mapping[str, str], field: str) -> tuple[str, ...]:
    chain: list[str] = []
    name = entry.parent
    while name:
        if name not in parents:
            raise PodGroupError(field, name, _PARENT_FIX)
        if name == entry.name or name in chain:
            raise PodGroupError(field, entry.parent, _CYCLE_FIX)
        chain.append(name)
        name = parents[name]
    return tuple(chain)
