"""What happened in the cluster, and which waiting pods it could help.

A pod that was refused is looked at again only when something changed that stood in its way. A new pod
elsewhere, a heartbeat or a claim that moves on to its next state wakes nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from apportion.core.reasons import Code
from apportion.core.refusals import NodeGroup, Refusal
from apportion.view.changes import Change, Happened

# Rules about groups of nodes: a change on one node can make another one fit.
_STORAGE = frozenset({Code.VOLUME_NODE, Code.VOLUME_CLAIM, Code.VOLUME_BUSY, Code.VOLUME_LIMIT})
_ACROSS_NODES = _STORAGE | {Code.SPREAD, Code.SPREAD_LABEL, Code.NEAR, Code.APART, Code.KEPT_APART}

_HELPED = {
    Happened.SLICE_FREED: frozenset({Code.NO_PLACE}),
    Happened.POD_GONE: frozenset(
        {
            Code.RESOURCE,
            Code.PODS,
            Code.PORTS,
            Code.NO_DEVICE,
            Code.NO_MEMORY,
            Code.VOLUME_BUSY,
            Code.VOLUME_LIMIT,
            Code.SPREAD,
            Code.APART,
            Code.KEPT_APART,
        }
    ),
    Happened.POD_CAME: frozenset({Code.NEAR, Code.SPREAD}),
    Happened.NODE_CHANGED: frozenset(Code),
    Happened.STORAGE_CHANGED: _STORAGE,
    Happened.EVERYTHING: frozenset(Code),
}


class Changes:
    """What happened since the last round, asked for one waiting pod after the other."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self._changes = frozenset(change for change in changes if change.kind in _HELPED)
        self._everything = any(change.kind is Happened.EVERYTHING for change in self._changes)
        self._pods = {change.pod for change in self._changes if change.pod}
        self._known: dict[int, bool] = {}

    def __bool__(self) -> bool:
        return bool(self._changes)

    def can_help(self, refusal: Refusal) -> bool:
        """Pods that were refused together share their groups, so thousands of them cost one look."""
        if self._everything or refusal.uid in self._pods:
            return True
        key = id(refusal.groups)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = any(_helps(refusal.groups, change) for change in self._changes)
        return known


def _helps(groups: Sequence[NodeGroup], change: Change) -> bool:
    there = [group for group in groups if change.node in group.nodes]
    if change.kind is Happened.NODE_CHANGED and not there:
        return True  # a node that was not there when the pod was refused
    helped = _HELPED[change.kind]
    return any(group.code in helped for group in there) or any(
        group.code in helped and group.code in _ACROSS_NODES for group in groups
    )
