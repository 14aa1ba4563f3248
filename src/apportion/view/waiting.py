"""Pods that have no node yet, of every scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from apportion.apis import names
from apportion.apis.identities import NodeName, PodUID
from apportion.apis.pods import Pod
from apportion.apis.request import Request
from apportion.view.requests import Reading


class WaitingPod(NamedTuple):
    """`held`: its owners are not known yet, so nothing can be decided about it for a moment."""

    pod: Pod
    reading: Reading
    held: bool = False


Listener = Callable[[PodUID, WaitingPod | None], None]


class WaitingPods:
    """By uid. Pods that are being deleted do not wait any more; gated ones do."""

    def __init__(self) -> None:
        self._pods: dict[PodUID, WaitingPod] = {}
        self._listeners: list[Listener] = []

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(self._pods.values())

    def get(self, uid: PodUID) -> WaitingPod | None:
        return self._pods.get(uid)

    def nominated(self) -> Iterator[tuple[Request, NodeName]]:
        """Pods of ours for which a place was written down as their nominated node."""
        for waiting in self:
            request, node = waiting.reading.request, waiting.pod.status.nominated_node_name
            if node and request is not None and request.scheduler_name in names.OUR_SCHEDULERS:
                yield request, NodeName(node)

    def on_change(self, listener: Listener) -> None:
        """Call `listener(uid, pod)` when a pod begins to wait or asks for something else; None: it waits no longer.

        Listeners do not hear of pods that are held back.
        """
        self._listeners.append(listener)
        for uid, waiting in list(self._pods.items()):
            if not waiting.held:
                listener(uid, waiting)

    def add(self, uid: PodUID, waiting: WaitingPod) -> None:
        before = self._pods.get(uid)
        self._pods[uid] = waiting
        if not waiting.held:
            self._tell(uid, waiting)
        elif before is not None and not before.held:
            self._tell(uid, None)

    def remove(self, uid: PodUID) -> None:
        before = self._pods.pop(uid, None)
        if before is not None and not before.held:
            self._tell(uid, None)

    def _tell(self, uid: PodUID, waiting: WaitingPod | None) -> None:
        for listener in self._listeners:
            listener(uid, waiting)
