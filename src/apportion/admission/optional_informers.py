"""Informers for kinds that may not be installed; they start when the kind is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.view.optional_informers import probe

RETRY_SECONDS = 15.0


class OptionalInformers:
    """Informers that run once the API server knows the first one's kind."""

    def __init__(self, client: Client, informers: Sequence[Informer[Any]], namespace: str) -> None:
        self._client = client
        self._informers = informers
        self._namespace = namespace
        self._absent = False

    def synced(self) -> bool | str:
        """A readiness check: all is known, or there is nothing to know."""
        if self._absent or all(informer.has_synced for informer in self._informers):
            return True
        return f"waiting for {', '.join(informer.kind.plural for informer in self._informers)}"

    async def run(self) -> None:
        while not await self._installed():  # noqa: ASYNC110  there is no notification when a kind is installed
            await asyncio.sleep(RETRY_SECONDS if self._absent else 1.0)
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run())
            for informer in self._informers:
                await informer.synced()
            self._absent = False

    async def _installed(self) -> bool:
        try:
            await probe(self._client, self._informers[0].kind, self._namespace)
        except errors.NotFound:
            self._absent = True
            return False
        except errors.ClusterError:
            return False
        return True
