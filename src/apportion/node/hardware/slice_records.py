"""The agent's own records of the slices it makes, kept on the node's disk.

An entry reserves a place and is removed only after its claim is gone. `making` is written directly before the slice is
made, the uuid directly after. So at whatever point the agent is killed, the records say which places are reserved and
which slices on the GPUs are ours: the one with the entry's uuid, or, while it was being made, the one at the entry's
place. Any other slice belongs to another program and is not changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec

from apportion.apis.identities import ClaimName, DeviceUUID, PodUID
from apportion.apis.placements import SlicePlacement
from apportion.node import atomic_files
from apportion.node.hardware.partitioner import Slice

FILE_NAME = "slices.json"

log = logging.getLogger(__name__)


class SliceRecord(msgspec.Struct, frozen=True):
    """One slice: of which claim, whose pod, where; and its uuid once it was made."""

    claim: ClaimName
    pod_uid: PodUID
    place: SlicePlacement
    uuid: DeviceUUID = DeviceUUID("")
    making: bool = False

    def owns(self, found: Slice) -> bool:
        """Is this the entry's slice? One without a uuid is half made, or half destroyed."""
        if found.place != self.place:
            return False
        return found.uuid in ("", self.uuid) if self.uuid else self.making


class SliceRecords:
    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE_NAME
        self._entries: dict[ClaimName, SliceRecord] = {}

    def load(self) -> None:
        """Records that cannot be read count as lost: they are restored from the status of the claims."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            entries = [_read(stored) for stored in msgspec.json.decode(self._path.read_bytes(), type=list[_Stored])]
        except FileNotFoundError:
            entries = []
        except msgspec.DecodeError as error:
            log.warning("cannot read %s (%s): slice records are restored from the claims", self._path, error)
            self._path.replace(self._path.with_suffix(".unreadable"))
            entries = []
        self._entries = {entry.claim: entry for entry in entries}

    def put(self, entry: SliceRecord) -> None:
        if self._entries.get(entry.claim) != entry:
            self._save({**self._entries, entry.claim: entry})

    def remove(self, claim: ClaimName) -> None:
        if claim in self._entries:
            self._save({name: entry for name, entry in self._entries.items() if name != claim})

    def get(self, claim: ClaimName) -> SliceRecord | None:
        return self._entries.get(claim)

    def of_pod(self, pod_uid: PodUID) -> list[SliceRecord]:
        return [entry for entry in self._entries.values() if entry.pod_uid == pod_uid]

    def overlapping(self, claim: ClaimName, place: SlicePlacement) -> SliceRecord | None:
        """Another claim's entry that overlaps this place."""
        return next((e for e in self._entries.values() if e.claim != claim and e.place.overlaps(place)), None)

    def at(self, place: SlicePlacement) -> SliceRecord | None:
        return next((entry for entry in self._entries.values() if entry.place == place), None)

    def __iter__(self) -> Iterator[SliceRecord]:
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def _save(self, entries: dict[ClaimName, SliceRecord]) -> None:
        # First the disk, then the memory: if the disk is full, the memory must not have more than the file.
        atomic_files.write(self._path, msgspec.json.encode([_stored(each) for each in entries.values()]))
        self._entries = entries


class _StoredPlacement(msgspec.Struct):
    gpu: DeviceUUID
    profile: str
    start: int
    size: int


class _Stored(msgspec.Struct, rename="camel"):
    """A record as it is in the file. Older agents wrote no `making`: their incomplete slices have no owner and are not
    changed."""

    claim: ClaimName
    pod_uid: PodUID
    place: _StoredPlacement
    uuid: DeviceUUID = DeviceUUID("")
    making: bool = False


def _stored(entry: SliceRecord) -> _Stored:
    return _Stored(entry.claim, entry.pod_uid, _StoredPlacement(*entry.place), entry.uuid, entry.making)


def _read(stored: _Stored) -> SliceRecord:
    at = stored.place
    placement = SlicePlacement(at.gpu, at.profile, at.start, at.size)
    return SliceRecord(stored.claim, stored.pod_uid, placement, stored.uuid, stored.making)
