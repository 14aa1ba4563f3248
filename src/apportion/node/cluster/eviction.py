"""Evicting a pod that has lost its slices, with an event that says why: its controller creates a new one."""

from __future__ import annotations

import logging

from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.events import Recorder, Regarding

log = logging.getLogger(__name__)


class Eviction:
    def __init__(self, client: Client, recorder: Recorder) -> None:
        self._client = client
        self._recorder = recorder

    async def evict(self, regarding: Regarding, why: str) -> None:
        """Twice does no harm; the kubelet's next attempt to start the pod is the next attempt to evict it."""
        self._recorder.warn(regarding, "SliceLost", f"{why}: the pod is evicted")
        try:
            await self._client.evict(regarding.namespace, regarding.name, uid=regarding.uid)
        except (errors.NotFound, errors.Conflict):
            return
        except errors.TooManyRequests as error:
            log.warning("pod %s/%s cannot be evicted yet: %s", regarding.namespace, regarding.name, error)
