"""A place for each claim: one that loses an overlap moves to another place of the node, or is marked as lost.

Two schedulers that both act as the leader can claim one place twice, and the hardware can refuse what should
fit, for example because slices that others created use up a limit. A claim whose place cannot be had gets
another place of the node if there is one; otherwise it is marked with the reason. The scheduler evicts the pod of
such a claim, so that its controller creates a new one that is scheduled again. Agents have no right to evict.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.identities import DeviceUUID
from apportion.apis.placements import SlicePlacement
from apportion.cluster.events import Recorder, Regarding
from apportion.node.cluster.claim_store import ClaimStore, place_of
from apportion.node.hardware import free_placement
from apportion.node.hardware.partitioner import Partitioner, PlacementTaken, Refused
from apportion.node.hardware.slice_records import SliceRecord, SliceRecords
from apportion.node.hardware.slicing import Slicing
from apportion.node.kubelet.prestart_errors import Overlap
from apportion.node.readiness import NodeChecks

HANDOVER_SECONDS = 3.0
POLL_SECONDS = 0.1
PLACES_TRIED = 3

log = logging.getLogger(__name__)


class ClaimPlacement:
    def __init__(
        self,
        *,
        driver: Partitioner,
        store: ClaimStore,
        records: SliceRecords,
        slicing: Slicing,
        recorder: Recorder,
        checks: NodeChecks,
    ) -> None:
        self._driver = driver
        self._store = store
        self._records = records
        self._slicing = slicing
        self._recorder = recorder
        self._checks = checks

    async def secure(self, claim: AllocationClaim) -> SliceRecord:
        """Record the claim's place; moves the claim if that place is taken."""
        place = place_of(claim)
        known = self._records.get(claim.name)
        if known is not None and known.place == place:
            return known
        if failure := self._checks.failure:
            raise Refused(failure.message)
        await self._check(claim, place)
        await self._await_handover(claim, place)
        try:
            return await self._slicing.reserve(claim.name, claim.pod_uid, place)
        except PlacementTaken as taken:
            if known is not None:
                raise
            return await self._elsewhere(claim, str(taken))

    async def make(self, entry: SliceRecord, claim: AllocationClaim) -> DeviceUUID:
        """The uuid of the claim's slice, made at the entry's place or, if the hardware refuses, at another."""
        refused: list[SlicePlacement] = []
        while True:
            try:
                return await self._slicing.make(entry)
            except PlacementTaken as taken:
                why = str(taken)
            refused.append(entry.place)
            self._records.remove(entry.claim)
            entry = await self._elsewhere(self._store.get(claim.name) or claim, why, refused)

    async def _check(self, claim: AllocationClaim, place: SlicePlacement) -> None:
        """A claim that no GPU can ever fulfil is refused before anything is written down."""
        gpu = next((gpu for gpu in await self._driver.discover() if gpu.uuid == place.gpu), None)
        if gpu is None:
            raise Refused(f"claim {claim.name}: spec.gpuUUID: {place.gpu} is not on this node")
        profile = gpu.profile(place.profile)
        if not gpu.sliced or profile is None:
            raise Refused(f"claim {claim.name}: spec.profile: {gpu.uuid} ({gpu.model}) cannot hold {place.profile}")
        if place.start not in profile.starts or place.size != profile.size:
            starts = ", ".join(map(str, profile.starts))
            text = f"{place.profile} has size {profile.size} and starts at {starts}"
            raise Refused(f"claim {claim.name}: spec.migPlacement: {place.start}+{place.size} is impossible: {text}")

    async def _await_handover(self, claim: AllocationClaim, place: SlicePlacement) -> None:
        """The entry of a claim that was just deleted is removed in a moment: that is no overlap."""
        end = asyncio.get_running_loop().time() + HANDOVER_SECONDS
        while asyncio.get_running_loop().time() < end:
            rival = self._records.overlapping(claim.name, place)
            existing = self._store.get(rival.claim) if rival else None
            if rival is None or (existing is not None and not existing.metadata.deleting):
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _elsewhere(self, claim: AllocationClaim, why: str, refused: Sequence[SlicePlacement] = ()) -> SliceRecord:
        pod = claim.spec.pod_ref
        regarding = Regarding.pod(pod.namespace, pod.name, pod.uid)
        for _ in range(len(refused), PLACES_TRIED):
            taken = [*await self._taken(claim), *refused]
            place = free_placement.find(claim.spec.profile, await self._driver.discover(), taken)
            if place is None:
                break
            # First the claim, then the records: a crash in between leaves a claim that is as good as new.
            claim = await self._store.move(claim, place)
            try:
                entry = await self._slicing.reserve(claim.name, claim.pod_uid, place)
            except PlacementTaken:
                continue
            log.warning("claim %s moved to %s: %s", claim.name, place, why)
            self._recorder.warn(regarding, "SliceMoved", f"{why}; {claim.name} moved to {place}")
            return entry
        text = f"{why}, and no other placement for {claim.spec.profile} is free on this node"
        log.warning("claim %s is lost: %s", claim.name, text)
        await self._store.mark_lost(claim, text)
        raise Overlap(text)

    async def _taken(self, claim: AllocationClaim) -> list[SlicePlacement]:
        promised = [place_of(other) for other in self._store.all() if other.name != claim.name]
        entered = [entry.place for entry in self._records if entry.claim != claim.name]
        return [*promised, *entered, *(found.place for found in await self._driver.slices())]
