"""AllocationClaims as slices of the fleet: each holds its place until the claim is gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.identities import ClaimName, DeviceUUID, NodeName, PodUID
from apportion.apis.placements import SlicePlacement
from apportion.core.fleet import Fleet
from apportion.core.operations import ObjectKind
from apportion.view.accelerators import Accelerators
from apportion.view.assumptions import Assumptions
from apportion.view.change_log import ChangeLog, Happened


class Claims:
    """Feeds claims into the fleet, and knows them by name."""

    def __init__(self, fleet: Fleet, changes: ChangeLog, accelerators: Accelerators, assumptions: Assumptions) -> None:
        self._fleet = fleet
        self._changes = changes
        self._accelerators = accelerators
        self._assumptions = assumptions
        self._objects: dict[ClaimName, AllocationClaim] = {}

    def __iter__(self) -> Iterator[AllocationClaim]:
        return iter(self._objects.values())

    def __len__(self) -> int:
        return len(self._objects)

    def of_pod(self, uid: PodUID) -> list[AllocationClaim]:
        """Claims of a pod that an informer has shown."""
        names = (ClaimName(record.key) for record in self._fleet.slices_of(uid))
        return [self._objects[name] for name in names if name in self._objects]

    def changed(self, old: AllocationClaim | None, new: AllocationClaim | None) -> None:
        before = self._changes.position
        self._changed(old, new)
        if old is None or new is None or old.status != new.status:
            self._changes.note_display(before)

    def _changed(self, old: AllocationClaim | None, new: AllocationClaim | None) -> None:
        if new is None:
            assert old is not None
            self._objects.pop(old.name, None)
            self._assumptions.shown(ObjectKind.CLAIM, old.name)
            self._leave(old.name, old.spec.nodename)
            return
        self._objects[new.name] = new
        self._assumptions.shown(ObjectKind.CLAIM, new.name)
        if old is None or (old.spec, old.metadata.deleting) != (new.spec, new.metadata.deleting):
            self._enter(new)

    def _enter(self, claim: AllocationClaim) -> None:
        spec, uid = claim.spec, claim.spec.pod_ref.uid
        placement = SlicePlacement(spec.gpu_uuid, spec.profile, spec.mig_placement.start, spec.mig_placement.size)
        before = self._fleet.slices.get(claim.name)
        releasing = claim.metadata.deleting
        self._fleet.add_slice(claim.name, placement, uid, node=spec.nodename, releasing=releasing)
        self._assign_devices({placement.gpu} if before is None else {placement.gpu, before.gpu})
        if before is None or before.releasing != releasing:
            self._changes.note(Happened.SLICE_CAME, spec.nodename, uid)
        if before is not None and before.placement != placement:  # its agent moved it, or another leader wrote it
            self._changes.note(Happened.SLICE_FREED, self._fleet.gpu_nodes.get(before.gpu, spec.nodename), uid)

    def _leave(self, name: ClaimName, node: NodeName) -> None:
        record = self._fleet.slices.get(name)
        if record is not None:
            self._fleet.remove_slice(name)
            self._assign_devices({record.gpu})
            home = self._fleet.gpu_nodes.get(record.gpu, node)
            self._changes.note(Happened.SLICE_FREED, home, PodUID(record.owner))

    def _assign_devices(self, gpus: Iterable[DeviceUUID]) -> None:
        """A GPU that is not in MIG mode may be assumed for a pod, which then has another one."""
        for gpu in sorted(gpus):
            node = self._fleet.gpu_nodes.get(gpu)
            if node is not None and not self._fleet.nodes[node].gpus[gpu].facts.mig:
                self._accelerators.assign_devices(node)
