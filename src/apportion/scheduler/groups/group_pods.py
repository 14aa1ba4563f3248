"""The pods of a PodGroup: those that wait or run, and those that have ended and still name it."""

from __future__ import annotations

from apportion.apis.custom_resources import pod_groups
from apportion.apis.custom_resources.pod_groups import PodGroup
from apportion.apis.identities import PodUID
from apportion.apis.kinds import PODS
from apportion.apis.owner_kinds import grouping
from apportion.apis.pods import Pod
from apportion.view.informers import BY_GROUP, Informers, named_group
from apportion.view.view import View


class GroupPods:
    """Groups have two names: that of their PodGroup, and the key by which decisions know them. They are the same, apart
    from pods that are groups of their own: these are known by their uid."""

    def __init__(self, view: View, informers: Informers) -> None:
        self._view, self._pods, self._groups = view, informers.pods, informers.pod_groups

    def of(self, key: str) -> list[Pod]:
        """By key, in no order. A pod that names a PodGroup of a user does not belong to that of its owners."""
        own = self._view.pods.get(PodUID(key))
        if own is not None:
            return [own]
        members = self._view.groups.members
        found = {uid: pod for uid in members.of(key) if (pod := self._view.pods.get(uid)) is not None}
        named = (pod for pod in self._pods.indexed(BY_GROUP, key) if members.key_of(pod.uid) in {None, key})
        return list((found | {pod.uid: pod for pod in named}).values())

    def group(self, key: str) -> PodGroup | None:
        """The PodGroup of the group with this key, if there is one."""
        if not len(self._groups):
            return None
        namespace, _, name = key.partition("/")
        if not name:
            pod = self._view.pods.get(PodUID(key))
            if pod is None:
                return None
            namespace, name = pod.metadata.namespace, grouping.single_group_name(pod.metadata.name, pod.uid)
        return self._groups.get(name, namespace)

    def key_of_pod(self, pod: Pod) -> str | None:
        """The key of its group; None if it is no pod of ours."""
        return self._view.groups.members.key_of(pod.uid) or next(iter(named_group(pod)), None)


def key_of(group: PodGroup) -> str:
    """The key of the group that a PodGroup stands for."""
    owners = group.metadata.owner_references
    if pod_groups.is_managed(group) and owners and owners[0].kind == PODS.kind:
        return owners[0].uid
    return f"{group.metadata.namespace}/{group.metadata.name}"
