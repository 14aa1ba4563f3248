"""Places for the successors of pods that are moved, as the scheduler has written them down in one ConfigMap.

Each key is a note about the places of one plan, which hold until the time of the note is over.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from apportion.apis import names
from apportion.apis.identities import PodUID
from apportion.apis.kinds import CONFIG_MAPS
from apportion.apis.meta import Wire
from apportion.cluster import clock, errors
from apportion.cluster.client import Client
from apportion.core.evictions.successor_places import KeptPlace
from apportion.core.fleet_facts import Reservation

SUCCESSOR_SECONDS = 120  # for a controller to make the pod anew


class Note(msgspec.Struct, frozen=True):
    """The places of one plan. Times are in seconds since 1970; reservations are stored by position."""

    since: int
    until: int
    places: tuple[tuple[PodUID, str, Reservation], ...]  # of each pod that is moved, with the date of its creation

    def left(self, today: float) -> list[tuple[KeptPlace, float]]:
        """Its places, each with the seconds for which it is kept; nothing if the time is over."""
        seconds = min(self.until - today, SUCCESSOR_SECONDS)  # clocks of leaders can differ
        if seconds <= 0:
            return []
        since = clock.timestamp_of(self.since)
        return [(KeptPlace(pod, created, since, place), seconds) for pod, created, place in self.places]


class _Notes(Wire):
    data: dict[str, str] = {}


async def read(client: Client, namespace: str) -> dict[str, Note | None]:
    """All notes, old ones too; None for one that cannot be read."""
    try:
        found = await client.get(CONFIG_MAPS, names.PLACE_NOTES, namespace=namespace, into=_Notes)
    except errors.NotFound:
        return {}
    return {key: decode(text) for key, text in sorted(found.data.items())}


def current(notes: Mapping[str, Note | None], today: float) -> list[tuple[KeptPlace, float]]:
    return [place for note in notes.values() if note is not None for place in note.left(today)]


def decode(text: str) -> Note | None:
    try:
        return msgspec.json.decode(text, type=Note)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
