"""Waiting until the cluster shows that a pod is gone.

An eviction is accepted long before the containers of its pod have ended. Whatever may be written only afterwards waits
here for the view, not for the answer of the API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from apportion.apis.identities import PodUID
from apportion.apis.pods import Pod
from apportion.view.requests import ended
from apportion.view.view import View


class PodEnds:
    """Tell it of pods by `changed(old, new)`, after the view."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._waiting: dict[PodUID, asyncio.Event] = {}

    def happened(self, uid: PodUID) -> bool:
        """The view shows no such pod, or that no container of it is left."""
        pod = self._view.pods.get(uid)
        return pod is None or ended(pod)

    async def wait(self, uids: Iterable[PodUID], seconds: float) -> PodUID | None:
        """Until all of them are gone; one that is not when the time is over."""
        left = {uid: self._waiting.setdefault(uid, asyncio.Event()) for uid in uids if not self.happened(uid)}
        try:
            async with asyncio.timeout(seconds):
                for event in left.values():
                    await event.wait()
        except TimeoutError:
            return next((uid for uid in left if not self.happened(uid)), None)
        return None

    def changed(self, old: Pod | None, new: Pod | None) -> None:
        subject = new or old
        if not self._waiting or subject is None or (new is not None and not ended(new)):
            return
        event = self._waiting.pop(PodUID(subject.metadata.uid), None)
        if event is not None:
            event.set()
