"""Of containers that hold the same device ids, the one that keeps them: the last to start.

An ordinary init container hands its devices on to a later container of its pod; the kubelet's record then names
both.
"""

from __future__ import annotations

import asyncio

from apportion.apis.identities import PodUID
from apportion.apis.pods import Pod
from apportion.node.cluster.claim_store import ClaimStore
from apportion.node.cluster.pod_watch import PodWatch
from apportion.node.kubelet.prestart_errors import NotRecorded

POLL_SECONDS = 0.05


class LastContainer:
    def __init__(self, pods: PodWatch, store: ClaimStore, *, patience: float) -> None:
        self._pods = pods
        self._store = store
        self._patience = patience

    async def of(self, pod_uid: PodUID, containers: frozenset[str]) -> str:
        if len(containers) == 1:
            return next(iter(containers))
        return _last_to_start(await self._pod(pod_uid), containers)

    async def _pod(self, uid: PodUID) -> Pod:
        """With a claim the API can be asked for the pod; without one our own copy has to show it."""
        end = asyncio.get_running_loop().time() + self._patience
        while True:
            reference = next((claim.spec.pod_ref for claim in self._store.of_pod(uid)), None)
            pod = await self._pods.find(uid, reference)
            if pod is not None:
                return pod
            if reference is not None or asyncio.get_running_loop().time() >= end:
                raise NotRecorded(f"pod {uid} is not known on this node")
            await asyncio.sleep(POLL_SECONDS)


def _last_to_start(pod: Pod, containers: frozenset[str]) -> str:
    order = [container.name for container in (*pod.spec.init_containers, *pod.spec.containers)]
    return max(containers, key=lambda name: order.index(name) if name in order else -1)
