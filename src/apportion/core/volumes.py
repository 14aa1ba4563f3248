"""Volume claims, volumes and storage classes, as far as they decide where a pod may run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from apportion.apis.identities import NodeName
from apportion.apis.selectors import LabelSelector, NodeSelector, NodeSelectorTerm

NO_PROVISIONER = "kubernetes.io/no-provisioner"


@dataclass(frozen=True)
class VolumeClaimFacts:
    """One PersistentVolumeClaim. `volume` is set once it is bound, `selected_node` once it is to be provisioned."""

    volume: str = ""
    selected_node: str = ""
    storage_class: str = ""
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    size: int = 0
    selector: LabelSelector | None = None
    deleting: bool = False
    uid: str = ""


@dataclass(frozen=True)
class VolumeFacts:
    """One PersistentVolume. `claim` is the volume claim that it is bound to or reserved for, as namespace/name."""

    node_affinity: NodeSelector | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    claim: str = ""
    storage_class: str = ""
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    size: int = 0
    phase: str = "Available"
    version: str = field(default="", compare=False)  # of the object, for whoever changes it


@dataclass(frozen=True)
class StorageClassFacts:
    """One StorageClass."""

    provisioner: str = NO_PROVISIONER
    waits_for_pod: bool = False
    allowed_topologies: tuple[NodeSelectorTerm, ...] = ()


class VolumeChoice(NamedTuple):
    """What a volume claim is to get: a ready-made volume, or one that is provisioned for this node."""

    node: NodeName
    volume: str = ""


class Storage(msgspec.Struct):
    """All of them. A fleet without storage facts does not check volumes.

    `chosen` is for volume claims whose choice is not visible yet. In snapshots volume claims have the name `claims`.
    """

    volume_claims: dict[str, VolumeClaimFacts] = msgspec.field(default_factory=dict, name="claims")  # namespace/name
    volumes: dict[str, VolumeFacts] = {}
    classes: dict[str, StorageClassFacts] = {}
    chosen: dict[str, VolumeChoice] = {}
