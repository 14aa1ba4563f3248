"""One claim, one slice: made at most once, adopted if it is there, destroyed only if it is ours.

The final decision about a place is made here, because every slice of the node is created here: a place that another
claim's entry covers is taken, whatever any scheduler decided.
"""

from __future__ import annotations

import logging

import msgspec

from apportion.apis.identities import ClaimName, DeviceUUID, PodUID
from apportion.apis.placements import SlicePlacement
from apportion.node.hardware.partitioner import Partitioner, PlacementTaken, Refused, Slice
from apportion.node.hardware.slice_records import SliceRecord, SliceRecords
from apportion.node.locks import Locks

log = logging.getLogger(__name__)


class Slicing:
    def __init__(self, driver: Partitioner, records: SliceRecords, locks: Locks) -> None:
        self._driver = driver
        self._records = records
        self._locks = locks

    async def reserve(self, claim: ClaimName, pod_uid: PodUID, place: SlicePlacement) -> SliceRecord:
        """Record the place for this claim, or raise PlacementTaken."""
        known = self._records.get(claim)
        if known is not None and known.place == place:
            return known
        if known is not None and await self._of(known) is not None:
            raise PlacementTaken(f"the claim was changed to {place} after its slice was created at {known.place}")
        async with self._locks.gpu(place.gpu):
            rival = self._records.overlapping(claim, place)
            if rival is not None:
                log.warning("claim %s: %s is taken by claim %s", claim, place, rival.claim)
                raise PlacementTaken(f"{place} is taken by another claim ({rival.place})")
            other = await self._overlapping(place)
            if other is not None:
                raise PlacementTaken(f"{place} is taken by {other.uuid or 'a slice'}, which Apportion did not create")
            entry = SliceRecord(claim, pod_uid, place)
            self._records.put(entry)
            return entry

    async def uuid_of(self, entry: SliceRecord) -> DeviceUUID:
        """The uuid of the entry's slice if it exists, else an empty text."""
        found = await self._of(entry) if entry.uuid else None
        return found.uuid if found else DeviceUUID("")

    async def make(self, entry: SliceRecord) -> DeviceUUID:
        """The uuid of the entry's slice, which is created if necessary.

        PlacementTaken if it cannot be had there, for whatever reason: then nothing of ours is there.
        """
        async with self._locks.gpu(entry.place.gpu):
            entry = self._records.get(entry.claim) or entry
            found = await self._at(entry.place)
            if found is not None and not entry.owns(found):
                raise PlacementTaken(f"{entry.place} holds {found.uuid or 'a slice'}, which Apportion did not create")
            if found is not None and found.uuid:
                made = found
            else:
                if found is not None:  # incomplete: the agent was killed
                    await self._driver.destroy(entry.place)
                made = await self._create(entry)
            self._records.put(msgspec.structs.replace(entry, uuid=made.uuid, making=False))
            return made.uuid

    async def unmake(self, entry: SliceRecord) -> None:
        """Destroy the entry's slice. The entry stays until its claim is gone."""
        async with self._locks.gpu(entry.place.gpu):
            found = await self._at(entry.place)
            if found is not None and not entry.owns(found):
                return  # ours was lost in a reset of the GPU or never created; this slice belongs to another program
            if not entry.uuid and not entry.making:
                return  # reserved, and never made
            await self._driver.destroy(entry.place)  # also if nothing is seen: a lost GPU shows nothing

    async def foreign(self) -> list[Slice]:
        """Slices on the GPUs that no entry accounts for."""
        return [found for found in await self._driver.slices() if not self._accounted(found)]

    def _accounted(self, found: Slice) -> bool:
        entry = self._records.at(found.place)
        return entry is not None and entry.owns(found)

    async def _create(self, entry: SliceRecord) -> Slice:
        self._records.put(msgspec.structs.replace(entry, uuid=DeviceUUID(""), making=True))
        try:
            return await self._driver.create(entry.place)
        except (PlacementTaken, Refused) as error:  # any other error may have left something behind
            self._records.put(msgspec.structs.replace(entry, uuid=DeviceUUID(""), making=False))
            raise PlacementTaken(str(error)) from error

    async def _of(self, entry: SliceRecord) -> Slice | None:
        found = await self._at(entry.place)
        return found if found is not None and entry.owns(found) else None

    async def _at(self, place: SlicePlacement) -> Slice | None:
        return next((found for found in await self._driver.slices() if found.place == place), None)

    async def _overlapping(self, place: SlicePlacement) -> Slice | None:
        return next((found for found in await self._driver.slices() if found.place.overlaps(place)), None)
