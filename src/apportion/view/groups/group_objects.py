"""Feeds owners, PodGroups and priority classes; the pods that a change concerns are read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from apportion.apis.custom_resources.pod_groups import PodGroup
from apportion.apis.owner_kinds.table import OwnerKinds
from apportion.apis.priorities import PriorityClass
from apportion.view.groups.groups import Groups
from apportion.view.groups.owners import Following, KindKey
from apportion.view.pods import Pods

Json = Mapping[str, Any]


class GroupObjects:
    def __init__(self, groups: Groups, pods: Pods) -> None:
        self._groups = groups
        self._pods = pods
        self._on_unknown: Callable[[list[KindKey]], None] | None = None

    def owner_changed(self, old: Json | None, new: Json | None) -> None:
        self._pods.read_again(self._groups.owners.changed(old, new))

    def pod_group_changed(self, old: PodGroup | None, new: PodGroup | None) -> None:
        subject = new or old
        assert subject is not None
        key = f"{subject.metadata.namespace}/{subject.metadata.name}"
        self._pods.read_again(self._groups.set_pod_group(key, new))

    def priority_class_changed(self, old: PriorityClass | None, new: PriorityClass | None) -> None:
        subject = new or old
        assert subject is not None
        value = new.value if new is not None else None
        self._pods.read_again(self._groups.set_priority_class(subject.metadata.name, value))

    def pod_groups_known(self) -> None:
        """All PodGroups have been read: pods whose PodGroup is not among them have a problem."""
        if not self._groups.pod_groups_known:
            self._groups.pod_groups_known = True
            self._pods.read_again(self._groups.without_pod_group())

    def priority_classes_known(self) -> None:
        if not self._groups.classes_known:
            self._groups.classes_known = True
            self._pods.read_again(self._groups.without_class())

    def set_owner_kinds(self, table: OwnerKinds) -> None:
        """Other rows count: owners whose rows have changed are followed anew, if pods name them."""
        unknown = self._groups.owners.set_table(table)
        if self._on_unknown is not None:
            self._on_unknown(unknown)
        self._pods.read_again(self._groups.with_owner())

    def follow_owners(
        self, on_wanted: Callable[[KindKey], None], on_unknown: Callable[[list[KindKey]], None] | None = None
    ) -> None:
        """From now on owners are followed: `on_wanted` is called with each kind that pods or their owners name, and
        `on_unknown` with those that have to be read anew, if they are wanted."""
        self._on_unknown = on_unknown
        self._groups.owners.follow(on_wanted)
        self._pods.read_again(self._groups.with_owner())

    def set_following(self, kind: KindKey, following: Following) -> None:
        """Whether owners of a kind are followed."""
        self._groups.owners.set_following(kind, following)
        if following is Following.UNREADABLE:
            self._pods.read_again(self._groups.held())

    def release_overdue(self) -> None:
        """Decide about pods whose owners were not shown for too long, by what is known."""
        self._pods.read_again(self._groups.overdue())

    def release_all(self) -> None:
        """Nothing more will be shown."""
        self._pods.read_again(self._groups.release_all())
