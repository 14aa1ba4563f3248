"""AllocationClaims as slices of the fleet: each holds its place until the claim is gone."""

from __future__ import annotations

from collections.abc import Iterator

from apportion.apis.claims import AllocationClaim
from apportion.cluster.pending_writes import PendingWrites
from apportion.core.fleet import Fleet
from apportion.view.changes import ChangeLog, Happened


class Claims:
    """Feeds claims into the fleet, and knows them by name. `pending` are those that we wrote and have not seen."""

    def __init__(self, fleet: Fleet, changes: ChangeLog, pending: PendingWrites[AllocationClaim]) -> None:
        self._fleet = fleet
        self._changes = changes
        self._objects: dict[str, AllocationClaim] = {}
        self.pending = pending

    def __iter__(self) -> Iterator[AllocationClaim]:
        return iter(self._objects.values())

    def __len__(self) -> int:
        return len(self._objects)

    def of_pod(self, uid: str) -> list[AllocationClaim]:
        """Claims of a pod that an informer has shown."""
        return [self._objects[record.key] for record in self._fleet.slices_of(uid) if record.key in self._objects]

    def changed(self, old: AllocationClaim | None, new: AllocationClaim | None) -> None:
        if new is None:
            assert old is not None
            self._objects.pop(old.name, None)
            self.pending.shown(old.name)
            self._leave(old.name, old.spec.nodename)
            return
        self._objects[new.name] = new
        self.pending.shown(new.name, new)
        if old is None or old.spec != new.spec:
            self._enter(new)

    def drop(self, name: str) -> None:
        """A claim that we meant to write is not on the server."""
        if self.pending.drop(name) and name not in self._objects:
            self._leave(name)

    def _enter(self, claim: AllocationClaim) -> None:
        spec, place, uid = claim.spec, claim.spec.mig_placement, claim.spec.pod_ref.uid
        before = self._fleet.slices.get(claim.name)
        self._fleet.add_slice(claim.name, spec.gpu_uuid, spec.profile, place.start, place.size, uid)
        if before is None:
            self._changes.note(Happened.SLICE_CAME, spec.nodename, uid)
        elif before != self._fleet.slices[claim.name]:  # its agent moved it, or another leader wrote it
            self._changes.note(Happened.SLICE_FREED, self._fleet.gpu_nodes.get(before.gpu, spec.nodename), uid)

    def _leave(self, name: str, node: str = "") -> None:
        record = self._fleet.slices.get(name)
        if record is not None:
            self._fleet.remove_slice(name)
            self._changes.note(Happened.SLICE_FREED, self._fleet.gpu_nodes.get(record.gpu, node), record.pod_uid)
