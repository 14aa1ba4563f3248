"""Places for successors of pods that are moved, written down for the next leader in one ConfigMap.

A successor has no pod to which its place could be written. The pods that take the freed places belong to others, who
must not learn from them whose pods were moved, so the notes are in the namespace of the installation, where only the
scheduler writes. Old notes are removed with the next write.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from apportion.apis import names
from apportion.apis.identities import PodUID
from apportion.apis.kinds import CONFIG_MAPS
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.core.evictions.successor_places import KeptPlace
from apportion.core.fleet_facts import Reservation
from apportion.core.operations import KeepPlaces
from apportion.view import kept_places
from apportion.view.kept_places import Note

log = logging.getLogger(__name__)

READ_ATTEMPTS = 5
READ_AGAIN_SECONDS = 0.5


class PlaceNotes:
    """Writes notes, and reads those of earlier leaders. `today` are seconds since 1970."""

    def __init__(self, client: Client, namespace: str, today: Callable[[], float] = time.time) -> None:
        self._client, self._namespace, self._today = client, namespace, today
        self._until: dict[str, int] = {}  # of the notes that are there

    async def write(self, operation: KeepPlaces) -> None:
        now = int(self._today())
        key = operation.confirmed_by.name
        note = Note(now, now + kept_places.SUCCESSOR_SECONDS, _places(operation))
        data: dict[str, str | None] = {old: None for old, until in self._until.items() if until <= now}
        await self._patch(data | {key: msgspec.json.encode(note).decode()})
        self._until = {old: until for old, until in self._until.items() if until > now} | {key: note.until}

    async def exists(self, operation: KeepPlaces) -> bool:
        note = (await kept_places.read(self._client, self._namespace)).get(operation.confirmed_by.name)
        return note is not None and note.places == _places(operation)

    async def read(self) -> list[tuple[KeptPlace, float]]:
        """Places whose time is not over, each with the seconds that are left. Nothing if the API server does not
        answer: pods can be scheduled without them."""
        for _ in range(READ_ATTEMPTS):
            try:
                notes = await kept_places.read(self._client, self._namespace)
            except errors.ClusterError as error:
                log.warning("places for pods that were moved: %s", error)
                await asyncio.sleep(READ_AGAIN_SECONDS)
                continue
            for key in (key for key, note in notes.items() if note is None):
                log.warning("ConfigMap %s: %s is not readable and is ignored", names.PLACE_NOTES, key)
            self._until = {key: note.until if note is not None else 0 for key, note in notes.items()}
            return kept_places.current(notes, self._today())
        return []

    async def _patch(self, data: dict[str, str | None]) -> None:
        patch = {"data": data}
        try:
            await self._client.patch(CONFIG_MAPS, names.PLACE_NOTES, patch, namespace=self._namespace)
        except errors.NotFound:
            try:
                body = {"metadata": {"name": names.PLACE_NOTES}, "data": {k: v for k, v in data.items() if v}}
                await self._client.create(CONFIG_MAPS, body, namespace=self._namespace)
            except errors.AlreadyExists:  # another leader was faster
                await self._client.patch(CONFIG_MAPS, names.PLACE_NOTES, patch, namespace=self._namespace)


def _places(operation: KeepPlaces) -> tuple[tuple[PodUID, str, Reservation], ...]:
    pairs = zip(operation.moved, operation.reservations, strict=True)
    return tuple((request.uid, request.created, reservation) for request, reservation in pairs)
