"""Which pending pods a change of the cluster could help.

A refused pod is tried again only after a change that can resolve its reason: the row of each reason lists these
changes. A new pod elsewhere, a heartbeat or a claim that moves on to its next state wakes nobody.
"""

from __future__ import annotations

from collections.abc import Iterable

from apportion.core.changes import Change, Happened
from apportion.core.groups import Group
from apportion.core.reasons import Scope
from apportion.core.refusals import Refusal


class Changes:
    """What happened since the last round, asked for one waiting group after the other."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self._changes = frozenset(change for change in changes if change.kind is not Happened.SLICE_CAME)
        self._missed = any(change.kind is Happened.EVERYTHING for change in self._changes)
        self._pods = {change.pod for change in self._changes if change.pod}
        self._known: dict[int, bool] = {}

    def __bool__(self) -> bool:
        return bool(self._changes)

    def can_help(self, group: Group, refusal: Refusal) -> bool:
        """Groups that ask for the same share their refusal, so thousands of them cost one look."""
        if self._missed or any(member.uid in self._pods for member in group.members):
            return True
        key = id(refusal)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = any(_helps(refusal, change) for change in self._changes)
        return known


def _helps(refusal: Refusal, change: Change) -> bool:
    row = refusal.code.row
    if not refusal.groups:
        return row.scope is Scope.FLEET and change.kind in row.helped_by
    known = False
    for group in refusal.groups:
        here = change.node in group.nodes
        known = known or here
        row = group.code.row
        if change.kind in row.helped_by and (here or row.scope is Scope.FLEET):
            return True
    # A node that was not there when the pod was refused.
    return change.kind is Happened.NODE_CHANGED and not known
