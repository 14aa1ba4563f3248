"""All pods of a group: those that wait or run, and those that have ended and still name it."""

from __future__ import annotations

from apportion.apis.pods import Pod
from apportion.view.informers import BY_GROUP, Informers
from apportion.view.view import View


class GroupPods:
    def __init__(self, view: View, informers: Informers) -> None:
        self._view, self._pods = view, informers.pods

    def of(self, key: str) -> list[Pod]:
        """In no order. A pod that a PodGroup of a user has taken from its owners is not among those of the owners."""
        members = self._view.groups.members
        found = {uid: pod for uid in members.of(key) if (pod := self._view.pods.get(uid)) is not None}
        named = (pod for pod in self._pods.indexed(BY_GROUP, key) if members.key_of(pod.uid) in {None, key})
        return list((found | {pod.uid: pod for pod in named}).values())
