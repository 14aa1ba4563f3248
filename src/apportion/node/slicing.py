"""One claim, one slice: made at most once, adopted if it is there, destroyed only if it is ours.

The last judge of who gets a place is here, because every slice of the node passes through here: a place
that another claim's entry covers is taken, whatever any scheduler believed.
"""

from __future__ import annotations

import msgspec

from apportion.node.locks import Locks
from apportion.node.partitioner import Partitioner, Place, PlaceTaken, Refused, Slice
from apportion.node.slicebook import Entry, SliceBook


class Slicing:
    def __init__(self, driver: Partitioner, book: SliceBook, locks: Locks) -> None:
        self._driver = driver
        self._book = book
        self._locks = locks

    async def reserve(self, claim: str, pod_uid: str, place: Place) -> Entry:
        """Enter the place into the book for this claim, or raise PlaceTaken."""
        known = self._book.get(claim)
        if known is not None and known.place == place:
            return known
        if known is not None and await self._of(known) is not None:
            raise PlaceTaken(f"the claim was changed to {place} after its slice was made: {known.place}")
        async with self._locks.gpu(place.gpu):
            rival = self._book.in_the_way(claim, place)
            if rival is not None:
                raise PlaceTaken(f"{place} is taken by claim {rival.claim} ({rival.place})")
            stranger = await self._overlapping(place)
            if stranger is not None:
                raise PlaceTaken(f"{place} is taken by {stranger.uuid or 'a slice'}, which Apportion did not make")
            entry = Entry(claim, pod_uid, place)
            self._book.put(entry)
            return entry

    async def standing(self, entry: Entry) -> str:
        """The uuid of the entry's slice if it exists, else an empty text."""
        found = await self._of(entry) if entry.uuid else None
        return found.uuid if found else ""

    async def make(self, entry: Entry) -> str:
        """The uuid of the slice that the entry speaks of, made if need be.

        PlaceTaken if it cannot be had there, for whatever reason: then nothing of ours stands there.
        """
        async with self._locks.gpu(entry.place.gpu):
            entry = self._book.get(entry.claim) or entry
            found = await self._at(entry.place)
            if found is not None and not entry.owns(found):
                raise PlaceTaken(f"{entry.place} holds {found.uuid or 'a slice'}, which Apportion did not make")
            if found is not None and found.uuid:
                made = found
            else:
                if found is not None:  # half made when the agent died
                    await self._driver.destroy(entry.place)
                made = await self._create(entry)
            self._book.put(msgspec.structs.replace(entry, uuid=made.uuid, making=False))
            return made.uuid

    async def unmake(self, entry: Entry) -> None:
        """Destroy the entry's slice. The entry stays until its claim is gone."""
        async with self._locks.gpu(entry.place.gpu):
            found = await self._at(entry.place)
            if found is not None and not entry.owns(found):
                return  # ours went with a reset of the GPU or was never made, and this is somebody else's
            if not entry.uuid and not entry.making:
                return  # reserved, and never made
            await self._driver.destroy(entry.place)  # also if nothing is seen: a lost GPU shows nothing

    async def strangers(self) -> list[Slice]:
        """Slices on the GPUs that no entry accounts for."""
        return [found for found in await self._driver.slices() if not self._accounted(found)]

    def _accounted(self, found: Slice) -> bool:
        entry = self._book.at(found.place)
        return entry is not None and entry.owns(found)

    async def _create(self, entry: Entry) -> Slice:
        self._book.put(msgspec.structs.replace(entry, uuid="", making=True))
        try:
            return await self._driver.create(entry.place)
        except (PlaceTaken, Refused) as error:  # any other error may have left something behind
            self._book.put(msgspec.structs.replace(entry, uuid="", making=False))
            raise PlaceTaken(str(error)) from error

    async def _of(self, entry: Entry) -> Slice | None:
        found = await self._at(entry.place)
        return found if found is not None and entry.owns(found) else None

    async def _at(self, place: Place) -> Slice | None:
        return next((found for found in await self._driver.slices() if found.place == place), None)

    async def _overlapping(self, place: Place) -> Slice | None:
        return next((found for found in await self._driver.slices() if found.place.overlaps(place)), None)
