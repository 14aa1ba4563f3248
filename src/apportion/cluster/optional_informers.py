"""Informers for kinds that may not be installed, or that the reader may not be allowed to read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from apportion.apis.kinds import Kind
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer

T = TypeVar("T")

log = logging.getLogger(__name__)

ABSENT_SECONDS = 10.0  # between two looks for a kind that is not there
RETRY_SECONDS = 0.5


class OptionalInformer:
    """Follows a kind once the API server serves it; until then there are no such objects.

    `on_known` is called when all objects have been read. A kind that may not be read is treated like one that is not
    there, with a warning unless it is `silent`; if it is `required`, nothing is known until it can be read.
    """

    def __init__(
        self,
        client: Client,
        informer: Informer[Any],
        *,
        namespace: str | None = None,
        on_known: Callable[[], None] | None = None,
        silent: bool = False,
        required: bool = False,
    ) -> None:
        self.informer = informer
        self._client = client
        self._namespace = namespace
        self._on_known = on_known
        self._silent, self._required = silent, required
        self._synced = asyncio.Event()

    @property
    def kind(self) -> Kind:
        return self.informer.kind

    @property
    def has_synced(self) -> bool:
        return self._synced.is_set()

    async def synced(self) -> None:
        """All is known, or there is nothing to know."""
        await self._synced.wait()

    async def load(self) -> None:
        """List once; raises Forbidden unless it is `silent`."""
        try:
            await self.informer.load()
        except errors.NotFound:
            return
        except errors.Forbidden:
            if not self._silent:
                raise
            return
        self._known()

    async def run(self) -> None:
        """Follow until cancelled."""
        while not await self._served():  # noqa: ASYNC110  nobody tells when a kind is installed
            await asyncio.sleep(ABSENT_SECONDS if self._synced.is_set() else RETRY_SECONDS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.informer.run())
            await self.informer.synced()
            self._known()
            self._synced.set()

    def _known(self) -> None:
        if self._on_known is not None:
            self._on_known()

    async def _served(self) -> bool:
        """False without `synced` if the server has no answer."""
        try:
            await probe(self._client, self.kind, self._namespace)
        except errors.NotFound:
            self._synced.set()
            return False
        except errors.Forbidden as error:
            if self._required:
                log.debug("%s: %s", self.kind.plural, error)
                return False
            if not self._synced.is_set():
                log.warning("%s: %s; going on without them", self.kind.plural, error)
            self._synced.set()
            return False
        except errors.ClusterError as error:
            log.debug("%s: %s", self.kind.plural, error)
            return False
        return True


async def probe(client: Client, kind: Kind, namespace: str | None = None) -> None:
    """Raises NotFound if the API server does not serve a kind, Forbidden if it may not be listed."""
    await client.raw("GET", kind.path(namespace=namespace), query={"limit": "1"})


class Burst(Generic[T]):
    """Changes that an informer reports in one go, delivered together."""

    def __init__(self, deliver: Callable[[list[tuple[T | None, T | None]]], None]) -> None:
        self._deliver = deliver
        self._changes: list[tuple[T | None, T | None]] = []

    def changed(self, old: T | None, new: T | None) -> None:
        if not self._changes:
            asyncio.get_running_loop().call_soon(self.flush)
        self._changes.append((old, new))

    def flush(self) -> None:
        changes, self._changes = self._changes, []
        if changes:
            self._deliver(changes)
