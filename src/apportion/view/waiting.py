"""Pods that have no node yet, of every scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from apportion.apis.identities import PodUID
from apportion.apis.pods import Pod
from apportion.view.requests import Reading


class WaitingPod(NamedTuple):
    pod: Pod
    reading: Reading


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

    def on_change(self, listener: Listener) -> None:
        """Call `listener(uid, pod)` when a pod begins to wait or asks for something else; None: it waits no longer."""
        self._listeners.append(listener)
        for uid, waiting in list(self._pods.items()):
            listener(uid, waiting)

    def add(self, uid: PodUID, waiting: WaitingPod) -> None:
        self._pods[uid] = waiting
        for listener in self._listeners:
            listener(uid, waiting)

    def remove(self, uid: PodUID) -> None:
        if self._pods.pop(uid, None) is not None:
            for listener in self._listeners:
                listener(uid, None)
