"""Releases what containers no longer need: CDI files, then slices, then claims.

Works pod by pod, after changes and every few seconds, so that nothing depends on having seen an event. A pod is over
when the API says so (by uid, never by name) and the kernel agrees.
"""

from __future__ import annotations

import logging

from apportion.apis.custom_resources import claims
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.identities import PodUID
from apportion.cluster.events import Recorder, Regarding
from apportion.node.cluster.claim_store import ClaimStore, place_of
from apportion.node.cluster.pod_lifecycle import PodLifecycle, PodPhase
from apportion.node.cluster.pod_watch import PodWatch
from apportion.node.container.cdi import CdiFolder
from apportion.node.container.cgroups import Cgroups
from apportion.node.hardware.partitioner import PartitionError
from apportion.node.hardware.slice_records import SliceRecord, SliceRecords
from apportion.node.hardware.slicing import Slicing
from apportion.node.locks import Locks
from apportion.node.settings import Settings

log = logging.getLogger(__name__)


class Release:
    def __init__(
        self,
        *,
        settings: Settings,
        store: ClaimStore,
        pods: PodWatch,
        slicing: Slicing,
        records: SliceRecords,
        folder: CdiFolder,
        cgroups: Cgroups,
        locks: Locks,
        recorder: Recorder,
    ) -> None:
        self._settings = settings
        self._store = store
        self._pods = pods
        self._slicing = slicing
        self._records = records
        self._folder = folder
        self._cgroups = cgroups
        self._locks = locks
        self._recorder = recorder

    def pods(self) -> set[PodUID]:
        """The uids of all pods of which anything is left."""
        claimed = {claim.pod_uid for claim in self._store.all()}
        return claimed | {entry.pod_uid for entry in self._records} | self._folder.pods()

    def unclaimed(self) -> list[SliceRecord]:
        """Slices of running pods whose claims were removed by others."""
        return [entry for entry in self._records if self._store.get(entry.claim) is None and self._runs(entry.pod_uid)]

    def is_restored(self, claim: AllocationClaim) -> bool:
        """A claim that the scheduler created again for a slice that exists."""
        entry = self._records.get(claim.name)
        unused = claim.state == claims.CREATED and not claim.metadata.deleting
        return unused and entry is not None and bool(entry.uuid) and entry.place == place_of(claim)

    async def reconcile(self, uid: PodUID) -> float | None:
        """Release what is over; returns the seconds until the next check if something is about to end."""
        async with self._locks.pod(uid):
            found = self._store.of_pod(uid)
            reference = found[0].spec.pod_ref if found else None
            life = await self._pods.life(uid, reference)
            await self._drop_unused(found)
            await self._confirm_restored(found)
            if life.state is PodPhase.unbound:
                return None
            return await self._release(uid, found, life)

    async def _release(self, uid: PodUID, found: list[AllocationClaim], life: PodLifecycle) -> float | None:
        due = [claim for claim in found if life.over_for(claim.spec.containers)]
        orphans = self._orphans(uid, found) if life.over else []
        if not due and not life.over:
            return None
        if self._still_runs(uid, life):
            return self._settings.drain_seconds
        self._remove_files(uid, life)
        if life.refusal and found:
            self._explain(found, life.refusal)
        waits = [await self._free(claim) for claim in due]
        waits += [await self._free_orphan(entry) for entry in orphans]
        return min((wait for wait in waits if wait is not None), default=None)

    def _runs(self, uid: PodUID) -> bool:
        pod = self._pods.get(uid)
        return pod is not None and not pod.metadata.deleting and not pod.terminal

    async def _confirm_restored(self, found: list[AllocationClaim]) -> None:
        for claim in found:
            entry = self._records.get(claim.name)
            if entry is not None and self.is_restored(claim) and (uuid := await self._slicing.uuid_of(entry)):
                await self._store.set_state(claim, claims.IN_USE, uuid=uuid)
                log.info("claim %s was created again for %s", claim.name, uuid)

    def _orphans(self, uid: PodUID, found: list[AllocationClaim]) -> list[SliceRecord]:
        """Slices whose claim was deleted by force."""
        named = {claim.name for claim in found}
        return [entry for entry in self._records.of_pod(uid) if entry.claim not in named]

    def _still_runs(self, uid: PodUID, life: PodLifecycle) -> bool:
        if life.over:
            return self._cgroups.running(uid)
        return any(self._cgroups.running(uid, container_id) for container_id in life.ended.values() if container_id)

    def _remove_files(self, uid: PodUID, life: PodLifecycle) -> None:
        for name, owner in self._folder.of_pod(uid).items():
            if life.over_for(owner.containers):
                self._folder.remove(name, uid)

    async def _free(self, claim: AllocationClaim) -> float | None:
        entry = self._records.get(claim.name)
        if entry is not None and not await self._unmake(entry, claim):
            return self._settings.busy_seconds
        await self._store.remove(claim)
        self._records.remove(claim.name)
        log.info("claim %s is released", claim.name)
        return None

    async def _free_orphan(self, entry: SliceRecord) -> float | None:
        if not await self._unmake(entry, None):
            return self._settings.busy_seconds
        self._records.remove(entry.claim)
        return None

    async def _unmake(self, entry: SliceRecord, claim: AllocationClaim | None) -> bool:
        try:
            await self._slicing.unmake(entry)
        except PartitionError as error:
            log.warning("claim %s cannot be released yet: %s", entry.claim, error)
            if claim is not None:
                await self._store.set_state(claim, claim.state, message=f"Allocation is {claim.state}: {error}")
            return False
        return True

    async def _drop_unused(self, found: list[AllocationClaim]) -> None:
        """Claims that are being deleted before any slice was made for them."""
        for claim in found:
            if claim.metadata.deleting and self._records.get(claim.name) is None:
                await self._store.remove(claim)

    def _explain(self, found: list[AllocationClaim], refusal: str) -> None:
        pod = found[0].spec.pod_ref
        freed = ", ".join(f"{claim.spec.profile} on {claim.spec.gpu_uuid}" for claim in found)
        text = f"The kubelet rejected the pod ({refusal}). Released slices: {freed}"
        self._recorder.warn(Regarding.pod(pod.namespace, pod.name, pod.uid), "SlicesFreed", text)
