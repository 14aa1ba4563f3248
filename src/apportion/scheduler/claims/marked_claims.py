"""Evicts pods whose claims were marked by their agent: their node has no placement for them (S06).

Agents have no right to evict. The mark is a condition of the claim, so it outlasts a crash of either side: whoever
leads acts on it until the pod is gone. A mark counts only for a pod that is bound to the node of the claim.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.identities import ClaimName
from apportion.apis.pods import Pod
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.events import Recorder, Regarding
from apportion.cluster.informer import Informer
from apportion.cluster.workqueue import WorkQueue
from apportion.view.informers import BY_UID

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 2.0


class MarkedClaims:
    """Follows claims; the informer of pods needs the index `BY_UID`."""

    def __init__(
        self,
        client: Client,
        *,
        claims: Informer[AllocationClaim],
        pods: Informer[Pod],
        recorder: Recorder,
        holds: Callable[[], bool],
    ) -> None:
        self._client = client
        self._claims, self._pods = claims, pods
        self._recorder = recorder
        self._holds = holds
        self._queue: WorkQueue[tuple[str, ClaimName]] = WorkQueue("marked claims")
        claims.on_change(self._claim_changed)

    async def run(self) -> None:
        """Work until cancelled; the informers must have synced."""
        await self._queue.run(self._reconcile)

    def _claim_changed(self, _: AllocationClaim | None, new: AllocationClaim | None) -> None:
        if new is not None and new.lost:
            self._queue.add((new.metadata.namespace, new.name))

    async def _reconcile(self, key: tuple[str, ClaimName]) -> float | None:
        claim = self._claims.get(key[1], key[0])
        if claim is None or not claim.lost or claim.metadata.deleting:
            return None
        pod = next(iter(self._pods.indexed(BY_UID, claim.pod_uid)), None)
        if pod is None or not self._holds():  # our view of pods may be behind, and a late renewal may follow
            return LOOK_AGAIN_SECONDS
        if pod.metadata.deleting or pod.terminal or pod.spec.node_name != claim.spec.nodename:
            return None
        return await self._evict(pod, claim.lost)

    async def _evict(self, pod: Pod, why: str) -> float | None:
        meta = pod.metadata
        text = f"{why}: the pod is evicted"
        self._recorder.warn(Regarding.pod(meta.namespace, meta.name, meta.uid), "SliceLost", text)
        log.warning("pod %s/%s: %s", meta.namespace, meta.name, text)
        try:
            await self._client.evict(meta.namespace, meta.name, uid=meta.uid)
        except (errors.NotFound, errors.Conflict):
            return None
        except errors.TooManyRequests as error:
            log.warning("pod %s/%s cannot be evicted yet: %s", meta.namespace, meta.name, error)
            return LOOK_AGAIN_SECONDS
        return None
