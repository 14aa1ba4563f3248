"""Which pending pods a change of the cluster could help.

A refused pod is tried again only after a change that can resolve its reason: the row of each reason lists these
changes. A new pod elsewhere, a heartbeat or a claim that moves on to its next state wakes nobody.
"""

from __future__ import annotations

from collections.abc import Iterable

from apportion.core.cluster_changes import Change, Happened
from apportion.core.reasons import Scope
from apportion.core.refusals import Refusal


class HelpfulChanges:
    """What happened since the last cycle. `pods` are those whose own slices or pods it was about."""

    def __init__(self, changes: Iterable[Change]) -> None:
        happened = frozenset(change for change in changes if change.kind is not Happened.DISPLAY_CHANGED)
        self.pods = {change.pod for change in happened if change.pod}
        self._changes = {change for change in happened if change.kind is not Happened.SLICE_CAME}
        self._missed = any(change.kind is Happened.EVERYTHING for change in self._changes)

    def __bool__(self) -> bool:
        return bool(self._changes)

    def can_help(self, refusal: Refusal) -> bool:
        """Something stood in the way and may no longer do."""
        return self._missed or any(_helps(refusal, change) for change in self._changes)


def _helps(refusal: Refusal, change: Change) -> bool:
    row = refusal.code.row
    if not refusal.groups:
        return row.scope is Scope.FLEET and change.kind in row.helped_by
    if change.kind is Happened.QUEUE_CHANGED:  # others may have to make room for the pod now
        return True
    known = False
    for group in refusal.groups:
        here = change.node in group.nodes
        known = known or here
        row = group.code.row
        if change.kind in row.helped_by and (here or row.scope is Scope.FLEET):
            return True
    # A node that was not there when the pod was refused.
    return change.kind is Happened.NODE_CHANGED and not known
