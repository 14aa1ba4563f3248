"""Input of the core: nodes, GPUs, slices with their placements, and reservations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from apportion.apis.identities import NO_NODE, DeviceUUID, NodeName, PodUID
from apportion.apis.nodes import Taint
from apportion.apis.placements import SlicePlacement
from apportion.core.catalog import Model
from apportion.core.queues.accounts import Charge

__all__ = ["GpuFacts", "HeldShare", "HeldSlice", "NodeFacts", "Reservation", "Taint"]


@dataclass(frozen=True)
class GpuFacts:
    """One GPU. In MIG mode it is sliced, otherwise it is shared or given whole.

    `measured` is False if its memory is unknown: then the memory of its model is 1000, and only fractions can be taken
    of it. It `takes_shares` unless the reservation of those who share it is on another GPU, or its node could not give
    it to containers that share it.
    """

    uuid: DeviceUUID
    model: Model
    mig: bool
    healthy: bool = True
    measured: bool = True
    takes_shares: bool = True


@dataclass(frozen=True)
class NodeFacts:
    """One node; `allocatable` has CPU in milli and everything else in whole units."""

    name: NodeName
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Mapping[str, int] = field(default_factory=dict)


class HeldSlice(NamedTuple):
    """A slice that is assigned to a pod. `key` is its claim's name, `owner` the pod's uid; `releasing` while it is
    being freed. A slice that is reserved has the key of the reservation as its owner, one that Apportion did not make
    has none.

    `node` is where its claim says that it is, empty if that is unknown.
    """

    key: str
    placement: SlicePlacement
    owner: str
    node: NodeName = NO_NODE
    releasing: bool = False

    @property
    def gpu(self) -> DeviceUUID:
        return self.placement.gpu


class HeldShare(NamedTuple):
    """A share of a GPU's memory that a pod holds, 0 MiB if nobody knows how much. `group` names those who share the
    GPU; what is reserved for a pod has none. `node` is where the pod is, empty if that is unknown."""

    key: str
    gpu: DeviceUUID
    mib: int
    owner: PodUID
    group: str = ""
    node: NodeName = NO_NODE


class Reservation(NamedTuple):
    """Capacity of a node that is kept for its owner (a pod, a group, a promise), as if a pod used it.

    `after` are pods that are terminating (`releasing`): what they still hold on the node counts for the reservation, so
    that capacity which is being freed can be reserved without being counted twice. Pods on other nodes are among them
    if the owner waits for their end because of a limit. `charge` is what the queue of the owner is charged, as if its
    pod ran.
    """

    key: str
    node: NodeName
    resources: Mapping[str, int]
    slices: tuple[SlicePlacement, ...] = ()
    owner: str = ""
    after: tuple[PodUID, ...] = ()
    shares: tuple[tuple[DeviceUUID, int], ...] = ()
    charge: Charge | None = None
