"""Persistent volumes, their claims and their classes: the fields that Apportion reads."""

from __future__ import annotations

from typing import Annotated

import msgspec

from apportion.apis.meta import ObjectMeta, Wire
from apportion.apis.selectors import LabelSelector, NodeSelector, NodeSelectorTerm, Requirement

Quantities = dict[str, str | int | float]

STORAGE = "storage"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"


class Reference(Wire):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Amounts(Wire):
    requests: Quantities = {}


class PersistentVolumeClaimSpec(Wire):
    volume_name: str = ""
    storage_class_name: str = ""
    access_modes: list[str] = []
    volume_mode: str = "Filesystem"
    resources: Amounts = msgspec.field(default_factory=Amounts)
    selector: LabelSelector | None = None


class PersistentVolumeClaim(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=PersistentVolumeClaimSpec)


class VolumeNodeAffinity(Wire):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Wire):
    capacity: Quantities = {}
    storage_class_name: str = ""
    access_modes: list[str] = []
    volume_mode: str = "Filesystem"
    claim_ref: Reference | None = None
    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolumeStatus(Wire):
    phase: str = ""


class PersistentVolume(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PersistentVolumeSpec = msgspec.field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = msgspec.field(default_factory=PersistentVolumeStatus)


class TopologyExpression(Wire):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(Wire):
    match_label_expressions: tuple[TopologyExpression, ...] = ()

    def selector(self) -> NodeSelectorTerm:
        """The same as a term of a node selector."""
        return NodeSelectorTerm(
            match_expressions=tuple(
                Requirement(key=part.key, operator="In", values=part.values) for part in self.match_label_expressions
            )
        )


class StorageClass(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    provisioner: str = ""
    volume_binding_mode: Annotated[str, msgspec.Meta(description="Immediate or WaitForFirstConsumer.")] = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()
