"""The CustomResourceDefinitions of every kind of ours, made from the types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from apportion.apis import kinds, names
from apportion.apis.custom_resources import (
    accelerators,
    bind_requests,
    claims,
    das_operator,
    kai_config,
    pod_groups,
    queues,
    schema,
)
from apportion.apis.kinds import Kind

JSON = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """One column of `kubectl get`; `wide` ones show with -o wide only."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


@dataclass(frozen=True)
class Definition:
    """What a CRD says beyond its type."""

    kind: Kind
    struct: type[msgspec.Struct]
    short_names: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    open_spec: bool = False  # other people's manifests carry fields that we do not know: keep them
    rules: tuple[JSON, ...] = ()  # about the whole object


AGE = Column("Age", ".metadata.creationTimestamp", "date")
_GPU = names.NVIDIA_GPU.replace(".", r"\.")
READY = '.status.conditions[?(@.type=="Ready")].status'

DEFINITIONS = (
    Definition(
        kinds.ALLOCATION_CLAIMS,
        claims.AllocationClaim,
        ("alloc",),
        (
            AGE,
            Column("Profile", ".spec.profile", wide=True),
            Column("Node", ".spec.nodename", wide=True),
            Column("GPU", ".spec.gpuUUID", wide=True),
            Column("State", ".status.state", wide=True),
        ),
    ),
    Definition(
        kinds.NODE_ACCELERATORS,
        accelerators.NodeAccelerator,
        (),
        (Column("Ready", READY), AGE, Column("Agent", ".status.agent.name", wide=True)),
    ),
    Definition(
        kinds.DAS_OPERATORS,
        das_operator.DASOperator,
        (),
        (
            Column("Available", '.status.conditions[?(@.type=="Available")].status'),
            Column("Degraded", '.status.conditions[?(@.type=="Degraded")].status'),
            Column("Emulated", ".spec.emulatedMode"),
            AGE,
        ),
        open_spec=True,
    ),
    Definition(
        kinds.QUEUES,
        queues.Queue,
        (),
        (
            Column("Priority", ".spec.priority", "integer"),
            Column("Parent", ".spec.parentQueue"),
            Column("GPU-Quota", ".spec.resources.gpu.quota", "number"),
            Column("GPU-Share", f".status.fairShare.{_GPU}"),
            Column("GPU-Used", f".status.allocated.{_GPU}"),
            Column("GPU-Requested", f".status.requested.{_GPU}"),
            AGE,
            Column("GPU-Limit", ".spec.resources.gpu.limit", "number", wide=True),
            Column("GPU-Weight", ".spec.resources.gpu.overQuotaWeight", "number", wide=True),
            Column("Children", ".status.childQueues", wide=True),
            Column("DisplayName", ".spec.displayName", wide=True),
        ),
        rules=(queues.OWN_PARENT_RULE,),
    ),
    Definition(
        kinds.POD_GROUPS,
        pod_groups.PodGroup,
        ("pg",),
        (
            Column("Queue", ".spec.queue"),
            Column("MinMember", ".spec.minMember", "integer"),
            Column("Running", ".status.running", "integer"),
            Column("Pending", ".status.pending", "integer"),
            Column("Reason", ".status.schedulingConditions[0].reasons[0].reason"),
            AGE,
            Column("Phase", ".status.phase", wide=True),
            Column("Priority-Class", ".spec.priorityClassName", wide=True),
            Column("Preemptibility", ".spec.preemptibility", wide=True),
            Column("Message", ".status.schedulingConditions[0].reasons[0].message", wide=True),
        ),
        open_spec=True,
    ),
    Definition(
        kinds.BIND_REQUESTS,
        bind_requests.BindRequest,
        (),
        (
            Column("Pod", ".spec.podName"),
            Column("Node", ".spec.selectedNode"),
            Column("Phase", ".status.phase"),
            AGE,
        ),
    ),
    Definition(
        kinds.KAI_CONFIGS,
        kai_config.Config,
        (),
        (Column("GPU-Sharing", ".spec.admission.gpuSharing", "boolean"), AGE),
        open_spec=True,
    ),
)


def crds() -> list[JSON]:
    """All of them, ready to be applied."""
    return [_crd(definition) for definition in DEFINITIONS]


def _crd(definition: Definition) -> JSON:
    kind = definition.kind
    spelling: JSON = {
        "plural": kind.plural,
        "singular": kind.kind.lower(),
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
    }
    if definition.short_names:
        spelling["shortNames"] = list(definition.short_names)
    return {
        "apiVersion": kinds.CUSTOM_RESOURCE_DEFINITIONS.api_version,
        "kind": kinds.CUSTOM_RESOURCE_DEFINITIONS.kind,
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": spelling,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _object_schema(definition)},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(column) for column in definition.columns],
                }
            ],
        },
    }


def _object_schema(definition: Definition) -> JSON:
    whole = schema.structural(definition.struct)
    properties = whole["properties"]
    properties["metadata"] = {"type": "object"}  # the server knows it better, and allows nothing else here
    if definition.open_spec:
        properties["spec"]["x-kubernetes-preserve-unknown-fields"] = True
    if definition.rules:
        whole[queues.RULES] = list(definition.rules)
    return {**whole, "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, **properties}}


def _column(column: Column) -> JSON:
    wide = {"priority": 1} if column.wide else {}
    return {"name": column.name, "type": column.type, "jsonPath": column.path, **wide}
