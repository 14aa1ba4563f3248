"""The promises in the cluster: one ConfigMap, changed only with compare-and-swap."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from apportion.admission.fallback.promises import StoredPromises
from apportion.apis import kinds
from apportion.cluster import errors
from apportion.cluster.client import Client

log = logging.getLogger(__name__)

KEY = "book"


class PromiseStore:
    """Reads once, then relies on its last write until a conflict shows that another replica wrote."""

    def __init__(self, client: Client, *, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._known: tuple[str, StoredPromises] | None = None

    async def read(self) -> StoredPromises:
        if self._known is None:
            self._note(await self._fetch())
        assert self._known is not None
        return self._known[1]

    async def write(self, stored: StoredPromises) -> None:
        """Raises Conflict if the object is not the one that was read; any error leaves open what was written."""
        assert self._known is not None, "read first"
        version, self._known = self._known[0], None
        body = {
            "metadata": {"name": self._name, "namespace": self._namespace, "resourceVersion": version},
            "data": {KEY: stored.encode()},
        }
        answer = await self._client.replace(kinds.CONFIG_MAPS, body, namespace=self._namespace)
        self._known = (answer["metadata"]["resourceVersion"], stored)

    def forget(self) -> None:
        """Read the object again the next time."""
        self._known = None

    async def _fetch(self) -> dict[str, Any]:
        try:
            return await self._client.get(kinds.CONFIG_MAPS, self._name, namespace=self._namespace)
        except errors.NotFound:
            pass
        body = {"metadata": {"name": self._name, "namespace": self._namespace}}
        try:
            return await self._client.create(kinds.CONFIG_MAPS, body, namespace=self._namespace)
        except errors.AlreadyExists:  # another replica was faster
            return await self._client.get(kinds.CONFIG_MAPS, self._name, namespace=self._namespace)

    def _note(self, found: dict[str, Any]) -> None:
        text = (found.get("data") or {}).get(KEY)
        try:
            stored = StoredPromises.decode(text)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            log.warning("ConfigMap %s is invalid and will be replaced: %s", self._name, error)
            stored = StoredPromises()
        self._known = (found["metadata"]["resourceVersion"], stored)
