"""Groups that the cluster has no PodGroup of a user for, as the PodGroups that the scheduler makes of them. Rule Q11.

The owner whose pods form the group owns the PodGroup too, so that both go together.
"""

from __future__ import annotations

from dataclasses import dataclass

from apportion.apis.identities import PodUID
from apportion.apis.meta import OwnerReference
from apportion.apis.owner_kinds import grouping
from apportion.apis.pods import Pod
from apportion.apis.priorities import NON_PREEMPTIBLE, PREEMPTIBLE
from apportion.core.groups import Subgroup
from apportion.view.groups.groups import Groups
from apportion.view.pods import Pods


@dataclass(frozen=True, kw_only=True)
class OwnedGroup:
    """`priority_class` and `preemptibility` are empty if neither owner nor pod states them."""

    namespace: str
    name: str
    owner: OwnerReference
    minimum: int
    subgroups: tuple[Subgroup, ...]
    queue: str
    priority_class: str
    preemptibility: str

    @property
    def gang(self) -> bool:
        """Its pods start together; otherwise each pod starts on its own."""
        return self.minimum > 1 or bool(self.subgroups)


def owned_group(groups: Groups, pods: Pods, key: str) -> OwnedGroup | None:
    """The group with this key; None if it has no pods, its owners are not known, or its pods name a PodGroup of a user.

    If its pods differ in queue or priority, the first by uid counts.
    """
    uids = groups.members.of(key)
    pod = pods.get(min(uids) if uids else PodUID(key))
    if pod is None:
        return None
    request = groups.read(pod).reading.request
    word, complete = groups.owners.word(pod)
    if request is None or request.group_key != key or not complete:
        return None
    if request.group is None:
        owner, name = _itself(pod), grouping.single_group_name(request.name, request.uid)
    elif word.owner is not None and request.group == word.group:
        owner, name = word.owner, request.group
    else:
        return None
    gang = word.gang if request.group is not None else None
    stated = request.preemptibility
    return OwnedGroup(
        namespace=request.namespace,
        name=name,
        owner=owner,
        minimum=gang.minimum if gang is not None else 1,
        subgroups=gang.subgroups if gang is not None else (),
        queue=request.queue,
        priority_class=request.priority_class,
        preemptibility=stated if stated in (PREEMPTIBLE, NON_PREEMPTIBLE) else "",
    )


def _itself(pod: Pod) -> OwnerReference:
    return OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid)
