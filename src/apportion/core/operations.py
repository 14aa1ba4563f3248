"""What can be done for a pod: claim a slice, choose a volume, bind, bind with a share, evict, reserve.

An operation knows how to enter itself into a fleet and how to take that back exactly, which object of the cluster
confirms it once it is written (`confirmed_by`), what has to be there before it is written (`after`: objects that its
own statement writes, or ends of pods, whoever ends them), and what is free again when it is undone. Applying one whose
resources are already taken raises `LedgerError`, so `undo` never undoes what another operation did.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from apportion.apis.errors import LedgerError
from apportion.apis.identities import ClaimName, DeviceUUID, NodeName, PodUID
from apportion.apis.placements import SlicePlacement
from apportion.apis.request import Request
from apportion.core.cluster_changes import Change, Happened
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import Reservation
from apportion.core.volumes import VolumeChoice


class ObjectKind(StrEnum):
    CLAIM = "claim"  # by name
    POD = "pod"  # by uid: it has a node
    POD_END = "pod end"  # by uid: it is gone
    NOMINATION = "nomination"  # by reservation key: its pod names the node
    PLACES = "places"  # by uid of the pod that others make room for: where their successors go
    VOLUME = "volume"  # by name: it names its claim
    VOLUME_CLAIM = "volume claim"  # by namespace/name: it names a node

    @property
    def is_event(self) -> bool:
        """It happens some time after the write that causes it; the view shows when. Others exist once written."""
        return self is ObjectKind.POD_END

    @property
    def is_shown(self) -> bool:
        """The view shows it some time after it was written."""
        return self is not ObjectKind.PLACES


class ObjectRef(NamedTuple):
    """An object of the cluster in the state that an operation brings about."""

    kind: ObjectKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class _Operation(msgspec.Struct, frozen=True):
    def confirm(self, fleet: Fleet) -> bool:  # noqa: ARG002
        """The cluster shows the object: True if nothing has to be assumed any more."""
        return True


class ClaimSlice(_Operation, frozen=True):
    """Write the claim of one slice, before its pod is bound. `containers` are those that use it."""

    name: ClaimName
    request: Request
    node: NodeName
    placement: SlicePlacement
    containers: tuple[str, ...]
    after: tuple[ObjectRef, ...] = ()

    @property
    def confirmed_by(self) -> ObjectRef:
        return ObjectRef(ObjectKind.CLAIM, self.name)

    @property
    def frees(self) -> Change:
        return Change(Happened.SLICE_FREED, self.node, self.request.uid)

    def apply(self, fleet: Fleet) -> None:
        if self.name in fleet.slices:
            raise _taken(f"claim {self.name} is already there")
        fleet.add_slice(self.name, self.placement, self.request.uid, node=self.node)

    def undo(self, fleet: Fleet) -> None:
        fleet.remove_slice(self.name)


class BindVolume(_Operation, frozen=True):
    """Give a volume claim a ready-made volume, or have one provisioned for the node; before the pod is bound.

    `volume_version` is the version of the volume on which this was decided; if it has changed since, the write fails.
    """

    request: Request
    node: NodeName
    volume_claim: str
    volume_claim_uid: str = ""
    volume: str = ""
    volume_version: str = ""
    after: tuple[ObjectRef, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.request.namespace}/{self.volume_claim}"

    @property
    def confirmed_by(self) -> ObjectRef:
        if self.volume:
            return ObjectRef(ObjectKind.VOLUME, self.volume)
        return ObjectRef(ObjectKind.VOLUME_CLAIM, self.key)

    @property
    def frees(self) -> Change:
        return Change(Happened.STORAGE_CHANGED)

    def apply(self, fleet: Fleet) -> None:
        storage = fleet.storage
        if storage is None or self.key in storage.chosen:
            raise _taken(f"volume claim {self.key} has a volume")
        if self.volume and any(choice.volume == self.volume for choice in storage.chosen.values()):
            raise _taken(f"volume {self.volume} is chosen for another claim")
        fleet.choose_volume(self.key, VolumeChoice(self.node, self.volume))

    def undo(self, fleet: Fleet) -> None:
        fleet.forget_volume(self.key)

    def confirm(self, fleet: Fleet) -> bool:
        """True, and nothing is assumed any more, once the facts of the fleet show what was chosen."""
        storage = fleet.storage
        if storage is None:
            return False
        volume_claim, volume = storage.volume_claims.get(self.key), storage.volumes.get(self.volume)
        if volume_claim is not None and not volume_claim.volume:
            chosen = volume.claim if volume else volume_claim.selected_node
            if not chosen:
                return False
        fleet.forget_volume(self.key)
        return True


class _Binding(_Operation, frozen=True):
    """The part that does not depend on how the pod is bound."""

    request: Request
    node: NodeName

    @property
    def uid(self) -> PodUID:
        return self.request.uid

    @property
    def confirmed_by(self) -> ObjectRef:
        return ObjectRef(ObjectKind.POD, self.request.uid)

    @property
    def frees(self) -> Change:
        return Change(Happened.POD_GONE, self.node, self.request.uid)

    def undo(self, fleet: Fleet) -> None:
        fleet.remove_pod(self.uid)


class Bind(_Binding, frozen=True):
    """Bind a pod to its node. `devices` are whole GPUs that are assumed for it until the kubelet has chosen."""

    devices: tuple[DeviceUUID, ...] = ()
    after: tuple[ObjectRef, ...] = ()

    def apply(self, fleet: Fleet) -> None:
        if self.uid in fleet.pod_nodes:
            raise _taken(f"pod {self.request.key} has a node")
        fleet.add_pod(self.request, self.node, self.devices)


class BindShare(_Binding, frozen=True):
    """Pass a pod with a share to the binder: `shares` are (GPU uuid, MiB), `groups` those who share each GPU."""

    shares: tuple[tuple[DeviceUUID, int], ...]
    groups: tuple[str, ...]
    after: tuple[ObjectRef, ...] = ()

    def apply(self, fleet: Fleet) -> None:
        if self.uid in fleet.pod_nodes or share_key(self.uid, 0) in fleet.shares:
            raise _taken(f"pod {self.request.key} has a node")
        for number, ((gpu, mib), group) in enumerate(zip(self.shares, self.groups, strict=True)):
            fleet.add_share(share_key(self.uid, number), gpu, mib, self.uid, group, self.node)
        fleet.add_pod(self.request, self.node)

    def undo(self, fleet: Fleet) -> None:
        super().undo(fleet)
        for number in range(len(self.shares)):
            fleet.remove_share(share_key(self.uid, number))


class Evict(_Operation, frozen=True):
    """Evict a pod. Until it has ended it holds its resources, and these can be reserved."""

    request: Request
    node: NodeName
    reason: str = ""
    after: tuple[ObjectRef, ...] = ()

    @property
    def confirmed_by(self) -> ObjectRef:
        return ObjectRef(ObjectKind.POD_END, self.request.uid)

    @property
    def frees(self) -> Change | None:
        return None

    def apply(self, fleet: Fleet) -> None:
        uid = self.request.uid
        if uid not in fleet.pod_nodes or uid in fleet.releasing:
            raise _taken(f"pod {self.request.key} is not running")
        fleet.set_releasing(uid, releasing=True)

    def undo(self, fleet: Fleet) -> None:
        if not fleet.terminating(self.request.uid):
            fleet.set_releasing(self.request.uid, releasing=False)


class Reserve(_Operation, frozen=True):
    """Reserve capacity on a node for a pod that cannot be bound there yet; written as the pod's nominated node.

    What the reservation consists of follows from the pod and from what is terminating on the node, so the next leader
    can make it again.
    """

    request: Request
    reservation: Reservation
    after: tuple[ObjectRef, ...] = ()

    @property
    def node(self) -> str:
        return self.reservation.node

    @property
    def confirmed_by(self) -> ObjectRef:
        return ObjectRef(ObjectKind.NOMINATION, self.reservation.key)

    @property
    def frees(self) -> Change:
        return Change(Happened.POD_GONE, self.reservation.node)

    def apply(self, fleet: Fleet) -> None:
        key = self.reservation.key
        if key in fleet.reservations or key in fleet.ended_reservations:
            raise _taken(f"{key} is already reserved")
        fleet.reserve(self.reservation)

    def undo(self, fleet: Fleet) -> None:
        key = self.reservation.key
        if self.reservation in (fleet.reservations.get(key), fleet.ended_reservations.get(key)):
            fleet.release_reservation(key)


class KeepPlaces(_Operation, frozen=True):
    """Reserve capacity for the successors of pods that are moved (`moved`, each with the reservation in its position).

    They have no pods yet, so this is written down apart, in one piece; `request` is the first pod they make room for.
    """

    request: Request
    moved: tuple[Request, ...]
    reservations: tuple[Reservation, ...]
    after: tuple[ObjectRef, ...] = ()

    @property
    def confirmed_by(self) -> ObjectRef:
        return ObjectRef(ObjectKind.PLACES, self.request.uid)

    @property
    def frees(self) -> Change | None:
        return None

    def apply(self, fleet: Fleet) -> None:
        for each in self.reservations:
            if each.key in fleet.reservations or each.key in fleet.ended_reservations:
                raise _taken(f"{each.key} is already reserved")
        for each in self.reservations:
            fleet.reserve(each)

    def undo(self, fleet: Fleet) -> None:
        for each in self.reservations:
            if each in (fleet.reservations.get(each.key), fleet.ended_reservations.get(each.key)):
                fleet.release_reservation(each.key)


class Unreserve(_Operation, frozen=True):
    """End a reservation, because its owner uses the capacity or no longer needs it. Nothing is written.

    It comes back when this is undone, unless the operation that made it was undone meanwhile.
    """

    reservation: Reservation
    after: tuple[ObjectRef, ...] = ()

    @property
    def node(self) -> str:
        return self.reservation.node

    @property
    def confirmed_by(self) -> ObjectRef | None:
        return None

    @property
    def frees(self) -> Change | None:
        return None

    def apply(self, fleet: Fleet) -> None:
        if fleet.reservations.get(self.reservation.key) != self.reservation:
            raise _taken(f"{self.reservation.key} is not reserved")
        fleet.end_reservation(self.reservation.key)

    def undo(self, fleet: Fleet) -> None:
        if fleet.ended_reservations.get(self.reservation.key) == self.reservation:
            fleet.resume_reservation(self.reservation.key)

    def confirm(self, fleet: Fleet) -> bool:
        """The statement was carried out: the end is final."""
        fleet.settle_reservation(self.reservation.key)
        return True


Operation = ClaimSlice | BindVolume | Bind | BindShare | Evict | Reserve | KeepPlaces | Unreserve


def share_key(uid: PodUID, number: int) -> str:
    """The key of a pod's share on the number-th of its devices."""
    return f"{uid}/{number}"


def _taken(what: str) -> LedgerError:
    return LedgerError("NotApplicable", what)
