"""Events for pods that only their owner can help.

A pod that its kubelet rejected never starts, and one that asks for slices under NVIDIA's names because it was created
without the webhook never gets a node from any scheduler. Both are told once what to do; `why` says the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from apportion.apis.custom_resources.accelerators import NodeAccelerator
from apportion.apis.identities import PodUID
from apportion.apis.pods import Pod
from apportion.cluster import clock
from apportion.cluster.events import Recorder, Regarding
from apportion.cluster.workqueue import WorkQueue
from apportion.view import not_admitted, rejections
from apportion.view.informers import Informers
from apportion.view.view import View

log = logging.getLogger(__name__)

REJECTED, NOT_ADMITTED = "RejectedByKubelet", "NotAdmitted"
GRACE_SECONDS = 2.0  # nodes report static devices a moment after their kubelet has started
RECENT_SECONDS = 3600.0  # older pods that a new leader finds were told by the one before
LOOK_AGAIN_SECONDS = 60.0


class Advice:
    """Watches pods of all schedulers."""

    def __init__(self, view: View, informers: Informers, recorder: Recorder, *, holds: Callable[[], bool]) -> None:
        self._view = view
        self._recorder = recorder
        self._holds = holds
        self._queue: WorkQueue[PodUID] = WorkQueue("advice")
        self._undecided: set[PodUID] = set()  # no GPU offers what they ask for: agents may come back later
        informers.pods.on_change(self._changed)
        informers.accelerators.on_change(self._reported)

    async def run(self) -> None:
        """Work until cancelled; the informers must have synced."""
        await self._queue.run(self._reconcile)

    def _changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is None or new.metadata.deleting:
            return
        uid = PodUID(new.metadata.uid)
        if rejections.sentence(new):
            if not rejections.sentence(old) if old is not None else _is_recent(new):
                self._queue.add(uid)
        elif old is None and not_admitted.possible(new):
            self._queue.add_after(uid, GRACE_SECONDS)

    def _reported(self, old: NodeAccelerator | None, new: NodeAccelerator | None) -> None:
        if new is not None and new.status.gpus and not (old is not None and old.status.gpus):
            for uid in self._undecided:
                self._queue.add_after(uid, GRACE_SECONDS)

    async def _reconcile(self, uid: PodUID) -> float | None:
        self._undecided.discard(uid)
        pod = self._view.pods.get(uid)
        if pod is None or pod.metadata.deleting:
            return None
        if not self._holds():
            return LOOK_AGAIN_SECONDS
        rejected = rejections.sentence(pod)
        if rejected:
            self._tell(pod, REJECTED, rejected)
            return None
        if not not_admitted.possible(pod):
            return None
        said = not_admitted.sentence(self._view, pod)
        if not said:
            self._undecided.add(uid)
            return LOOK_AGAIN_SECONDS
        self._tell(pod, NOT_ADMITTED, said)
        return None

    def _tell(self, pod: Pod, reason: str, text: str) -> None:
        meta = pod.metadata
        log.info("pod %s/%s: %s: %r", meta.namespace, meta.name, reason, text)
        self._recorder.warn(Regarding.pod(meta.namespace, meta.name, meta.uid), reason, text)


def _is_recent(pod: Pod) -> bool:
    created = clock.parse_timestamp(pod.metadata.creation_timestamp or clock.timestamp())
    return (datetime.now(UTC) - created).total_seconds() < RECENT_SECONDS
