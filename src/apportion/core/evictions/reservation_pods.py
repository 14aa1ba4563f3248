"""Pods that hold a shared GPU: each goes with the last of those who share it, and is evicted for nobody."""

from __future__ import annotations

from collections.abc import Iterable

from apportion.apis import names
from apportion.apis.identities import PodUID
from apportion.core.fleet import Fleet
from apportion.core.node import NodeState


def sharers(fleet: Fleet, node: NodeState) -> dict[PodUID, set[PodUID]]:
    """The reservation pods of a node, with those for whom each holds its GPU."""
    if not node.reservation_pods:
        return {}
    groups: dict[str, set[PodUID]] = {}
    for uid in node.pods:
        for share in fleet.shares_of(uid) if fleet.holds(uid) else ():
            groups.setdefault(share.group, set()).add(uid)
    found: dict[PodUID, set[PodUID]] = {}
    for uid, request in node.pods.items():
        group = request.labels.get(names.GPU_GROUP_LABEL)
        if group and node.reserves(request):
            found[uid] = groups.get(group, set())
    return found


def leaving(fleet: Fleet, node: NodeState, gone: Iterable[PodUID] = ()) -> tuple[PodUID, ...]:
    """Who is terminating there, and the reservation pods that nobody needs once these, and those who are `gone`, have
    ended."""
    terminating = [uid for uid in node.pods if uid in fleet.releasing]
    ended = {*gone, *terminating}
    unneeded = [uid for uid, pods in sharers(fleet, node).items() if uid not in ended and pods <= ended]
    return (*terminating, *unneeded)
