"""Why a pod is evicted, in words for its event. Pods of other namespaces are not named."""

from __future__ import annotations

from apportion.apis.identities import NodeName
from apportion.core.evictions.rules import Preemption, Reclaim, Rules
from apportion.core.evictions.running_groups import RunningPod
from apportion.core.groups import Group


def said(rules: Rules, group: Group, pod: RunningPod, moved_to: NodeName | None) -> str:
    """`moved_to` is the node on which a place is reserved for its successor."""
    whom = _whom(group, pod)
    if moved_to is not None:
        return f"moved to make room for {whom}: a place on node {moved_to} is reserved for its successor"
    if isinstance(rules, Reclaim):
        return f"reclaimed for {whom} of queue {group.members[0].queue}: {rules.said_above(pod.group.queue)}"
    assert isinstance(rules, Preemption)
    return f"preempted by {whom} with priority {group.priority} in queue {pod.group.queue}: its own is lower"


def _whom(group: Group, pod: RunningPod) -> str:
    if all(member.namespace == pod.request.namespace for member in group.members):
        return group.name
    count = len(group.members)
    return f"{count} pods of another namespace" if count > 1 else "1 pod of another namespace"
