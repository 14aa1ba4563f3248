"""How pods are grouped, as the Config `kai-config` says: further kinds of owners, and PodGroups for single pods.

A row that cannot be used is left out, and `problems` says what is wrong with it. The others count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apportion.apis import names
from apportion.apis.custom_resources.kai_config import Config
from apportion.apis.owner_kinds.rows import OwnerKindError
from apportion.apis.owner_kinds.table import OwnerKinds
from apportion.view.groups.group_objects import GroupObjects


class GrouperConfig:
    """`table` has the rows that every configuration starts from."""

    def __init__(self, table: OwnerKinds, group_objects: GroupObjects) -> None:
        self.every_pod = False
        self.problems: tuple[OwnerKindError, ...] = ()
        self.config: Config | None = None
        self._table = table
        self._group_objects = group_objects
        self._rows: list[dict[str, Any]] = []
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def changed(self, old: Config | None, new: Config | None) -> None:
        subject = new or old
        assert subject is not None
        if subject.metadata.name != names.KAI_CONFIG_OBJECT:
            return
        self.config = new
        said = new.spec.pod_grouper if new is not None else Config().spec.pod_grouper
        if said.owner_kinds != self._rows:
            self._rows = said.owner_kinds
            table, problems = self._table.extended_by(self._rows)
            self.problems = tuple(problems)
            self._group_objects.set_owner_kinds(table)
        elif said.every_pod == self.every_pod:
            return
        self.every_pod = said.every_pod
        for listener in self._listeners:
            listener()
