"""The agent's own book of the slices it makes, kept on the node's disk.

An entry is written before the slice is made (its uuid is empty then) and struck out only after its
claim is gone. So whatever instruction the agent dies at, the book says which slices on the GPUs are
ours, and which places are spoken for: a slice that stands where an entry says, on a place that was
empty when the entry was written, is ours; any other slice is somebody else's and is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec

from apportion.node import files
from apportion.node.partitioner import Place

FILE_NAME = "slices.json"

log = logging.getLogger(__name__)


class Entry(msgspec.Struct, rename="camel", frozen=True):
    """One slice: of which claim, whose pod, where; and its uuid once it was made."""

    claim: str
    pod_uid: str
    place: Place
    uuid: str = ""


class SliceBook:
    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE_NAME
        self._entries: dict[str, Entry] = {}

    def load(self) -> None:
        """A book that cannot be read counts as lost: the claims' status is the second witness."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            entries = msgspec.json.decode(self._path.read_bytes(), type=list[Entry])
        except FileNotFoundError:
            entries = []
        except msgspec.DecodeError as error:
            log.warning("%s cannot be read (%s): starting from the claims alone", self._path, error)
            self._path.replace(self._path.with_suffix(".unreadable"))
            entries = []
        self._entries = {entry.claim: entry for entry in entries}

    def put(self, entry: Entry) -> None:
        if self._entries.get(entry.claim) != entry:
            self._save({**self._entries, entry.claim: entry})

    def strike(self, claim: str) -> None:
        if claim in self._entries:
            self._save({name: entry for name, entry in self._entries.items() if name != claim})

    def get(self, claim: str) -> Entry | None:
        return self._entries.get(claim)

    def of_pod(self, pod_uid: str) -> list[Entry]:
        return [entry for entry in self._entries.values() if entry.pod_uid == pod_uid]

    def in_the_way(self, claim: str, place: Place) -> Entry | None:
        """Another claim's entry that overlaps this place."""
        return next((e for e in self._entries.values() if e.claim != claim and e.place.overlaps(place)), None)

    def at(self, place: Place) -> Entry | None:
        return next((entry for entry in self._entries.values() if entry.place == place), None)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def _save(self, entries: dict[str, Entry]) -> None:
        # First the disk, then the memory: a full disk must not leave us believing what is not written.
        files.write(self._path, msgspec.json.encode(list(entries.values())))
        self._entries = entries
