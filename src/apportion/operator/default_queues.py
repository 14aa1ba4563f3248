"""Creates the queues for pods that name none, if they do not exist. Existing ones are left as they are. Rule Q02.

`kubectl apply -f` of one folder cannot create objects of a kind that the same command defines, so the operator does.
"""

from __future__ import annotations

import logging

from apportion import manifests
from apportion.apis import kinds
from apportion.cluster import errors
from apportion.cluster.client import Client

log = logging.getLogger(__name__)


class DefaultQueues:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._shipped = manifests.load("default-queues")
        self._exist = False

    def forget(self) -> None:
        """Look again: another replica may have led, and somebody may have deleted them."""
        self._exist = False

    async def create_missing(self) -> None:
        if self._exist:
            return
        for body in self._shipped:
            try:
                await self._client.create(kinds.QUEUES, body)
            except errors.AlreadyExists:
                continue
            except errors.NotFound:  # the kind is not served yet
                return
            log.info("created Queue %s", body["metadata"]["name"])
        self._exist = True
