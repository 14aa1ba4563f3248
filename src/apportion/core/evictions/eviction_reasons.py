"""Why pods are evicted, in words for their events. Pods of other namespaces are not named."""

from __future__ import annotations

from apportion.apis.identities import NodeName
from apportion.core.evictions.rules import Preemption, Reclaim, Rules
from apportion.core.evictions.running_group import RunningPod
from apportion.core.groups import Group


class EvictionReasons:
    """Of all pods that are evicted for one group."""

    def __init__(self, rules: Rules, group: Group) -> None:
        self._rules, self._group = rules, group
        self._namespaces = {member.namespace for member in group.members}

    def said(self, pod: RunningPod, moved_to: NodeName | None) -> str:
        """`moved_to` is the node on which a place is reserved for its successor."""
        whom = self._whom(pod)
        if moved_to is not None:
            return f"moved to make room for {whom}: a place on node {moved_to} is reserved for its successor"
        queue = self._group.members[0].queue
        if isinstance(self._rules, Reclaim):
            return f"reclaimed for {whom} of queue {queue}: {self._rules.said_above(pod.group.queue)}"
        assert isinstance(self._rules, Preemption)
        theirs, own = self._group.priority, pod.group.level.group
        return f"preempted for {whom} of the same queue {queue}: its priority is {theirs}, that of this pod {own}"

    def _whom(self, pod: RunningPod) -> str:
        if self._namespaces == {pod.request.namespace}:
            return self._group.name
        count = len(self._group.members)
        return f"{count} pods of another namespace" if count > 1 else "1 pod of another namespace"
